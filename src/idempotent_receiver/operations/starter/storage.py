"""Where a new project keeps its records and totals: in DynamoDB, or in a relational database. The parts that differ."""

from collections.abc import Mapping

DYNAMODB: Mapping[str, str] = {
    "effects_parameter": "Effects: {Type: String, AllowedValues: [any, transaction], Default: any, "
    "Description: 'With transaction, records are written once'}",
    "effects_variable": "EFFECTS: !Ref Effects",
    "tables": """\
Records: # one item per key: claimed, then completed or failed
  Type: AWS::DynamoDB::Table
  DeletionPolicy: RetainExceptOnCreate
  UpdateReplacePolicy: Retain
  Properties:
    BillingMode: PAY_PER_REQUEST
    AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
    KeySchema: [{AttributeName: id, KeyType: HASH}]
    TimeToLiveSpecification: {AttributeName: expiration, Enabled: true} # only cleans up: may delete days late
    PointInTimeRecoverySpecification: {PointInTimeRecoveryEnabled: true}

Totals: # your own table
  Type: AWS::DynamoDB::Table
  DeletionPolicy: RetainExceptOnCreate
  UpdateReplacePolicy: Retain
  Properties:
    BillingMode: PAY_PER_REQUEST
    AttributeDefinitions: [{AttributeName: customer, AttributeType: S}]
    KeySchema: [{AttributeName: customer, KeyType: HASH}]
""",
    "vpc": "",
    "table_variables": "RECORDS_TABLE: !Ref Records\nTOTALS_TABLE: !Ref Totals",
    "table_statements": """\
- Effect: Allow # claims and settlements of batches and single messages, and reads of redelivered ones
  Action: [dynamodb:PartiQLInsert, dynamodb:PartiQLUpdate, dynamodb:PutItem, dynamodb:UpdateItem, dynamodb:BatchGetItem]
  Resource: !GetAtt Records.Arn
- Effect: Allow # the handler, through its Transaction or directly
  Action: [dynamodb:GetItem, dynamodb:PutItem, dynamodb:UpdateItem, dynamodb:DeleteItem, dynamodb:ConditionCheckItem]
  Resource: !GetAtt Totals.Arn
""",
    "records_table": "!Ref Records",
    "records_output": "RecordsTable: {Value: !Ref Records}",
    "test_import": "",
    "test_variables": '"RECORDS_TABLE": "records",\n"TOTALS_TABLE": "totals",',
}

SQL: Mapping[str, str] = {
    **dict.fromkeys(DYNAMODB, ""),
    "tables": """\
DatabaseUrl: # a secret without a value: README.md has the command that sets it
  Type: AWS::SecretsManager::Secret
  DeletionPolicy: RetainExceptOnCreate
  UpdateReplacePolicy: Retain
""",
    "vpc": "# VpcConfig: {SubnetIds: [...], SecurityGroupIds: [...]} # the database's, see README.md",
    "table_variables": "DATABASE_URL_SECRET: !Ref DatabaseUrl",
    "table_statements": "- {Effect: Allow, Action: secretsmanager:GetSecretValue, Resource: !Ref DatabaseUrl}",
    "records_table": "none # records are in your database",
    "test_import": "import tempfile",
    "test_variables": '"DATABASE_URL": f"sqlite:///{tempfile.mkdtemp()}/database",',
}
