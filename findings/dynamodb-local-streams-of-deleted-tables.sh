#!/usr/bin/env bash
# DynamoDB Local 1.25 is slower after many tables with a stream have been deleted.
#
# A write to a new table with a stream costs the same as one to a new table without at first. After 1,000 tables with streams have
# been created, written and deleted, it took 1.8 and 2.0 times as long in two runs, and a read, which has nothing to do with a stream,
# 1.5 and 2.1 times. ListStreams still names the streams of the deleted tables. A suite that makes a table for each test is faster on several processes
# than on one that stays: ours took 265 s on eight and 659 s on two.
#
# Output of the first run:
#   streams: 1003, tables: 6
#   a write in a table with a stream, of one without: 0.94 times before 1,000 deletions, 1.79 times after
#   a read in a table with a stream, of one without: 1.06 times before 1,000 deletions, 1.49 times after
#
# Needs Java 17, npm, python3 with venv, and a network. Takes a minute. Fails if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
engine=
trap 'kill $engine 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
npm pack --silent amplify-dynamodb-simulator@2.9.30 >/dev/null
echo "3503ffac19f183407909fecdacf4db51ab1fdad1da7b2f177016670b2d80e4b9  amplify-dynamodb-simulator-2.9.30.tgz" | sha256sum --check --quiet
tar -xzf amplify-dynamodb-simulator-2.9.30.tgz
python3 -m venv tools
tools/bin/pip --quiet install boto3==1.40.0
# Below those that systems give to whoever asks for any.
port=$(shuf --input-range=10000-29999 --head-count=1)
(cd package/emulator && exec java -Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar -inMemory -sharedDb -port "$port") >log 2>&1 &
engine=$!
tools/bin/python - "$port" <<'PYTHON'
import sys
import time

import boto3
from botocore.config import Config

settings = dict(
    endpoint_url=f"http://127.0.0.1:{sys.argv[1]}",
    region_name="us-east-1",
    aws_access_key_id="local",
    aws_secret_access_key="local",
    config=Config(retries={"total_max_attempts": 20, "mode": "standard"}),
)
db = boto3.client("dynamodb", **settings)
streams = boto3.client("dynamodbstreams", **settings)


def create(name, stream):
    db.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"} if stream else {"StreamEnabled": False},
    )


def put(name, n=0):
    db.put_item(TableName=name, Item={"pk": {"S": str(n)}})


def seconds(call, times=300):
    started = time.perf_counter()
    for n in range(times):
        call(n)
    return time.perf_counter() - started


def ratios(suffix):
    """How much longer a write and a read take in a new table with a stream than in a new one without, the best of three."""
    for stream in (True, False):
        create(f"{stream}-{suffix}", stream)
        seconds(lambda n: put(f"{stream}-{suffix}", n))
    write = lambda stream: lambda n: put(f"{stream}-{suffix}", n)
    read = lambda stream: lambda n: db.get_item(TableName=f"{stream}-{suffix}", Key={"pk": {"S": str(n)}})
    return [min(seconds(call(True)) / seconds(call(False)) for _ in range(3)) for call in (write, read)]


ratios("first")
before = ratios("before")
for n in range(1000):
    create(f"gone-{n}", True)
    for item in range(5):
        put(f"gone-{n}", item)
    db.delete_table(TableName=f"gone-{n}")
after = ratios("after")
kept = 0
page = {}
while True:
    answer = streams.list_streams(**page)
    kept += len(answer["Streams"])
    if "LastEvaluatedStreamArn" not in answer:
        break
    page = {"ExclusiveStartStreamArn": answer["LastEvaluatedStreamArn"]}
print(f"streams: {kept}, tables: {len(db.list_tables()['TableNames'])}")
for what, was, now in zip(("a write", "a read"), before, after):
    print(f"{what} in a table with a stream, of one without: {was:.2f} times before 1,000 deletions, {now:.2f} times after")
slower = [now / was for was, now in zip(before, after)]
assert kept > 1000 and max(before) < 1.4 and slower[0] > 1.4 and slower[1] > 1.2, "the behaviour has changed"
PYTHON
