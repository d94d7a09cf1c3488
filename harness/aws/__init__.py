"""`make aws`: tests the guarantees on a real AWS account, after a rehearsal on the local cloud to compare with."""
