"""AWS's prices, as the benchmarks and a trial on AWS reckon with them."""

PRICED = "2025-11"
"""The prices' date: us-east-1, dollars, no free tier. Sources: AWS's pricing pages for Lambda and DynamoDB."""

PRICES = {
    "lambda_gb_second_arm64": 0.0000133334,
    "lambda_million_invocations": 0.20,
    "dynamodb_million_write_units": 0.625,
    "dynamodb_million_read_units": 0.125,
}
