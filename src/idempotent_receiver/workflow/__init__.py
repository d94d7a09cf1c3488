"""The way in for a Step Functions workflow: a request starts one execution."""
