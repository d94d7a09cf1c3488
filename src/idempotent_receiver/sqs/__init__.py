"""The way in for SQS: messages in, the failures out."""
