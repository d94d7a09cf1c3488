"""`make aws`: the promises on a real AWS account, rehearsed on the local cloud first, and held against it."""
