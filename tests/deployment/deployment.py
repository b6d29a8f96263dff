"""Deploys the module of infra/ to an emulated AWS and calls it as clients do.

    python3 deployment.py BINARIES OLDER_PROVIDER TOOLS PROGRAM

PROGRAM is `nameservice`. BINARIES holds the functions, built for this machine (`cargo lambdas`); OLDER_PROVIDER is the program beside this file, built;
TOOLS holds a mirror with a Terraform provider (.ci/tools). The emulator is ministack with IAM on: each function runs as a process under the
credentials of its role, and what the role does not allow is denied.

The provider is older than the module, so a copy of it is applied, without what the provider does not know. dropped.txt lists
that, line by line; what of it matters here is set through the API afterwards.
"""

import contextlib
import difflib
import gzip
import http.client
import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address

import boto3
import jwt
from botocore.config import Config
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / ".ci"))
from ports import free_port  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REGION = "eu-central-1"
AUDIENCE = "nameservice"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
PROVIDER = "3.39.0"

REQUIRED = f"""
terraform {{
  required_providers {{
    aws = {{
      source  = "hashicorp/aws"
      version = "{PROVIDER}"
    }}
  }}
}}
"""

OVERRIDE = """
provider "aws" {
  region                      = "%(region)s"
  access_key                  = "test"
  secret_key                  = "test"
  skip_credentials_validation = true
  skip_get_ec2_platforms      = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  skip_requesting_account_id  = true

  endpoints {
%(endpoints)s
  }
}

# The provider does not know provided.al2023, and uploads files one after the other, five seconds each.
resource "aws_lambda_function" "this" {
  runtime   = "provided.al2"
  filename  = null
  s3_bucket = "artifacts"
  s3_key    = each.key
}

# The provider cannot read a permission for everyone.
resource "aws_lambda_permission" "url" {
  for_each = {}
}
"""
SERVICES = ["apigateway", "cloudwatch", "cloudwatchevents", "cloudwatchlogs", "dynamodb", "iam", "lambda", "sns", "sqs", "sts"]


def step(text):
    print(f"   {text}", flush=True)


# How long anything may take on a busy machine, where functions start as processes of an emulator.
LONG = 300


def wait_for(what, condition):
    """Returns the first true result of `condition`; fails after LONG seconds."""
    end = time.monotonic() + LONG
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"after {LONG} seconds there is no {what}")
        time.sleep(0.2)
    return found


# --- callers ---


class Issuer:
    """Issues tokens, and serves its keys as an issuer does: over https, if the gateway fetches them."""

    def __init__(self, folder):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        self.jwks = json.dumps({"keys": [{**jwk, "kid": "one", "use": "sig", "alg": "RS256"}]})
        self.certificate = folder / "issuer.pem"
        self.write_certificate(folder / "issuer.key")
        port = free_port()
        self.url = f"https://127.0.0.1:{port}"
        documents = {
            "/.well-known/openid-configuration": json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}),
            "/jwks": self.jwks,
        }

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = documents.get(self.path, "").encode()
                self.send_response(200 if body else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, folder / "issuer.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def write_certificate(self, key_file):
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        now = datetime.now(timezone.utc)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self.key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
        builder = builder.not_valid_after(now + timedelta(days=1))
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        builder = builder.add_extension(address, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        certificate = builder.sign(self.key, hashes.SHA256())
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        formats = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key_file.write_bytes(self.key.private_bytes(serialization.Encoding.PEM, *formats))

    def token(self, scope=None, **claims):
        now = int(time.time())
        all_claims = {"iss": self.url, "aud": AUDIENCE, "sub": "somebody", "iat": now - 5, "exp": now + 3600, **claims}
        if scope:
            all_claims["scope"] = f"openid nameservice:{scope}"
        return jwt.encode(all_claims, self.key, algorithm="RS256", headers={"kid": "one"})


# --- the emulated AWS ---


class Cloud:
    """The emulator, and clients of it."""

    def __init__(self, executable, folder, issuer):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "ministack.log"
        environment = {
            **os.environ,
            **CREDENTIALS,
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "AUTH": "true",
            "AWS_ENDPOINT_URL": self.url,
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "SSL_CERT_FILE": str(issuer.certificate),
        }
        self.process = subprocess.Popen(
            [executable], env=environment, stdin=subprocess.DEVNULL, stdout=self.log.open("wb"), stderr=subprocess.STDOUT,
            cwd=folder, start_new_session=True,
        )
        wait_for("emulator", self.answers)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the emulator has ended:\n{self.log.read_text()[-4000:]}")
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/_ministack/health", timeout=60).status == 200
        return False

    def client(self, service):
        return boto3.client(
            service, endpoint_url=self.url, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test",
            config=Config(retries={"max_attempts": 3}, connect_timeout=60, read_timeout=LONG),
        )

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Deployment:
    """The copy of the module, applied."""

    def __init__(self, folder, older_provider, tools, cloud, issuer):
        self.folder, self.module, self.older_provider = folder, folder / "module", older_provider
        self.module.mkdir()
        self.environment = {
            **os.environ,
            **CREDENTIALS,
            "TF_CLI_CONFIG_FILE": str(tools / "mirror" / "terraformrc"),
            "PATH": f"{tools / 'awscli' / 'bin'}:{os.environ['PATH']}",
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
        }
        endpoints = "\n".join(f'    {service} = "{cloud.url}"' for service in SERVICES)
        (self.module / "zz_test_override.tf").write_text(REQUIRED + OVERRIDE % {"region": REGION, "endpoints": endpoints})
        variables = {
            "artifacts": str(folder / "artifacts"),
            "architecture": "x86_64",
            "deletion_protection": False,
            "jwt_issuer": issuer.url,
            "jwt_audience": AUDIENCE,
            "jwks": issuer.jwks,
            # The emulator has no account concurrency to reserve.
            "long_poll_concurrency": -1,
            "event_stream_concurrency": -1,
        }
        (self.module / "terraform.tfvars.json").write_text(json.dumps(variables))
        # A folder that only requires the provider is enough to read its schema.
        (folder / "schema").mkdir()
        (folder / "schema" / "main.tf").write_text(REQUIRED)
        self.terraform("init", folder="schema")
        (folder / "schema.json").write_text(self.terraform("providers", "schema", "-json", folder="schema"))
        self.dropped = self.copy("nameservice", self.module) + self.copy("read-model", folder / "read-model")
        (folder / "read-model" / "zz_test_override.tf").write_text(REQUIRED)

    def copy(self, module, to):
        """Copies a module for the older provider; returns what had to be left out, a line each."""
        command = [self.older_provider, ROOT / "infra" / "modules" / module, to, self.folder / "schema.json"]
        left_out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return "".join(f"{module}: {line}\n" for line in left_out.splitlines())

    def terraform(self, *arguments, folder="module"):
        command = ["terraform", f"-chdir={self.folder / folder}", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise AssertionError(f"terraform {arguments[0]}:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
        return done.stdout

    def apply(self):
        self.terraform("init", "-input=false", "-no-color")
        self.terraform("apply", "-auto-approve", "-input=false", "-no-color", "-parallelism=40")
        return {name: output["value"] for name, output in json.loads(self.terraform("output", "-json")).items()}

    def destroy(self):
        self.terraform("destroy", "-auto-approve", "-input=false", "-no-color", "-parallelism=40")


def artifacts(binaries, folder, cloud):
    """Creates one archive per function, as cargo-lambda does, and uploads them to a bucket."""
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="artifacts", CreateBucketConfiguration={"LocationConstraint": REGION})
    for function in sorted(path.name for path in (ROOT / "functions").iterdir()):
        target = folder / "artifacts" / function / "bootstrap.zip"
        target.parent.mkdir(parents=True)
        entry = zipfile.ZipInfo("bootstrap", date_time=(1980, 1, 1, 0, 0, 0))
        entry.external_attr = 0o755 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr(entry, (binaries / function).read_bytes(), compresslevel=1)
        s3.upload_file(str(target), "artifacts", function)


# --- the tests ---


class Answer:
    def __init__(self, what, status, body):
        self.what, self.status = what, status
        try:
            self.body = json.loads(body) if body else None
        except ValueError:
            self.body = body.decode(errors="replace")

    def expect(self, status):
        assert self.status == status, f"{self.what}: {self.status} instead of {status}: {json.dumps(self.body)[:600]}"
        return self.body


class Api:
    """The gateway, for a caller."""

    def __init__(self, url, issuer):
        self.url, self.issuer = url, issuer

    def call(self, method, path, body=None, token=None, headers=()):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=dict(headers))
        if data is not None:
            request.add_header("content-type", "application/json")
        if token:
            request.add_header("authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=LONG) as response:
                return Answer(f"{method} {path}", response.status, response.read())
        except urllib.error.HTTPError as error:
            return Answer(f"{method} {path}", error.code, error.read())
        except (OSError, http.client.HTTPException) as error:
            # No answer: of no status.
            return Answer(f"{method} {path}", 0, str(error).encode())


CID = [f"bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyk{last}" for last in "aeimquy"]


def head(n):
    return {"id": CID[n], "t": n}


UNBORN = {"id": None, "t": 0}


def operations(token_of_lease):
    """Every operation once: function, scope, method, path, body, status. In this order each finds the records that it needs."""
    lease = {"name": "index_lock", "holder": "indexer"}
    source = {"source_type": "f:Bm25Index", "config": {"k1": 1.2}, "dependencies": ["mydb"]}
    yield "ledger_create", "write", "POST", "/v1/ledgers", {"address": "mydb"}, 201
    yield "head_push", "write", "PUT", "/v1/heads/mydb:main", {"expected": UNBORN, "new": head(1)}, 200
    yield "index_push", "write", "PUT", "/v1/indexes/mydb:main", {"new": head(1)}, 200
    yield "config_push", "write", "PUT", "/v1/configs/mydb", {"expected": {"v": 0}, "new": {"payload": {"a": 1}}}, 200
    yield "status_push", "write", "PUT", "/v1/statuses/mydb", {"expected": {"v": 1}, "new": {"payload": {"state": "syncing"}}}, 200
    yield "branch_create", "write", "POST", "/v1/branches", {"name": "mydb", "branch": "dev/one", "source": "main"}, 201
    yield "graph_source_publish", "write", "PUT", "/v1/graph-sources/search", source, 201
    yield "record_get", "read", "GET", "/v1/records/mydb:dev/one", None, 200
    yield "record_list", "read", "GET", "/v1/records?view=full", None, 200
    yield "search_get", "read", "GET", "/v1/search?q=mydb", None, 501
    yield "branch_list", "read", "GET", "/v1/branches/mydb", None, 200
    yield "snapshot_get", "read", "GET", "/v1/snapshot", None, 200
    yield "change_list", "read", "GET", "/v1/changes?wait=1&concern=head", None, 200
    yield "change_compare", "read", "POST", "/v1/changes/compare", {"subscriptions": {"mydb:main": {"commit_t": 0}}}, 200
    yield "history_list", "read", "GET", "/v1/history/mydb", None, 200
    yield "lease_acquire", "write", "PUT", "/v1/leases/mydb", lease, 200
    query = f"name=index_lock&holder=indexer&token={token_of_lease()}"
    yield "lease_release", "write", "DELETE", f"/v1/leases/mydb?{query}", None, 204
    push = {"op": "push_head", "address": "mydb", "expected": head(1), "new": head(2)}
    check = {"op": "check", "address": "mydb:dev/one", "concern": "head", "expected": head(1)}
    yield "transaction_commit", "write", "POST", "/v1/transactions", {"operations": [push, check]}, 200
    yield "head_reset", "admin", "POST", "/v1/resets/mydb", {"head": head(1), "index": UNBORN}, 200
    yield "protection_set", "admin", "PUT", "/v1/protections/mydb", {"protected": False}, 200
    yield "branch_drop", "admin", "DELETE", "/v1/branches/mydb:dev/one", None, 200
    yield "record_retract", "write", "POST", "/v1/retractions/search", {"reason": "done"}, 200
    yield "record_restore", "write", "POST", "/v1/restorations/search", {}, 200
    yield "record_purge", "admin", "DELETE", "/v1/records/search", None, 204


BELOW = {"read": None, "write": "read", "admin": "write"}


def drive_operations(api):
    """Calls each operation without a token, with an insufficient scope, and correctly."""
    seen, held = set(), {}
    for function, scope, method, path, body, status in operations(lambda: held["token"]):
        api.call(method, path, body).expect(401)
        api.call(method, path, body, token="a.b.c").expect(401)
        api.call(method, path, body, token=api.issuer.token(BELOW[scope])).expect(403)
        answer = api.call(method, path, body, token=api.issuer.token(scope)).expect(status)
        if function == "lease_acquire":
            held = answer
        seen.add(function)
    assert api.call("GET", "/v1/records/mydb", token=api.issuer.token("read")).expect(200)["head"] == head(1)
    return seen


def drive_open_routes(api):
    """Routes without a token, and paths without a route."""
    health = api.call("GET", "/v1/health").expect(200)
    assert health["status"] == "ok" and health["capabilities"]["search"] is False, health
    api.call("GET", "/v1/health?deep=true").expect(200)
    assert api.call("GET", "/v1/openapi.json").expect(200)["openapi"].startswith("3.1")
    api.call("GET", "/v1/docs").expect(200)
    api.call("GET", "/console").expect(200)
    api.call("GET", "/console/vendor/preact.js").expect(200)
    assert api.call("GET", "/v1/nowhere").expect(404)["type"].endswith("/not-found")
    assert api.call("PATCH", "/v1/records/mydb").expect(405)["type"].endswith("/method-not-allowed")
    return {"console_get", "health_get", "openapi_get", "not_found"}


def drive_fluree(api):
    """Fluree's routes, with Fluree's claims: the function verifies the token itself."""
    all_of_it = api.issuer.token(**{"fluree.storage.all": True})
    one = api.issuer.token(**{"fluree.storage.ledgers": ["theirs:main"]})
    for prefix in ("/fluree", "/v1/fluree"):
        name = "theirs" + prefix.count("/") * "x"
        path = f"{prefix}/nameservice/refs/{name}:main/init"
        assert api.call("POST", path).expect(401)["type"].endswith("/unauthorized")
        api.call("POST", path, token=api.issuer.token("read")).expect(403)
        assert api.call("POST", path, token=all_of_it).expect(200) == {"created": True}
        commit = {"expected": UNBORN, "new": head(3)}
        done = api.call("POST", f"{prefix}/nameservice/refs/{name}:main/commit", commit, token=all_of_it).expect(200)
        assert done["status"] == "updated", done
        record = api.call("GET", f"{prefix}/storage/ns/{name}:main", token=all_of_it).expect(200)
        assert record["commit_t"] == 3, record
        api.call("GET", f"{prefix}/storage/ns/{name}:main", token=one).expect(404)
        assert len(api.call("GET", f"{prefix}/nameservice/snapshot", token=all_of_it).expect(200)["ledgers"]) >= 2
    return {"fluree"}


def drive_changes(api, cloud, outputs):
    """A push arrives at a queue that subscribes to heads of ledgers only, and in the feed."""
    sqs, sns, dynamodb = cloud.client("sqs"), cloud.client("sns"), cloud.client("dynamodb")
    queue = sqs.create_queue(QueueName="heads")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    delivery = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": arn}
    delivery["Condition"] = {"ArnEquals": {"aws:SourceArn": outputs["topic_arn"]}}
    attributes = {"Policy": json.dumps({"Version": "2012-10-17", "Statement": [delivery]})}
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=attributes)
    policy = json.dumps({"concern": ["head"], "kind": ["ledger"]})
    sns.subscribe(
        TopicArn=outputs["topic_arn"], Protocol="sqs", Endpoint=arn,
        Attributes={"FilterPolicy": policy, "RawMessageDelivery": "true"},
    )
    token = api.issuer.token("write")
    api.call("POST", "/v1/ledgers", {"address": "watched"}, token=token).expect(201)
    api.call("PUT", "/v1/statuses/watched", {"expected": {"v": 1}, "new": {"payload": {"state": "x"}}}, token=token).expect(200)
    api.call("PUT", "/v1/heads/watched", {"new": head(4)}, token=token).expect(200)

    def received():
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in messages]

    events = []

    def arrived():
        events.extend(received())
        return [event for event in events if event["subject"] == "watched:main" and event["data"]["watermark"] == 4]

    event = wait_for("event of the push at the queue", arrived)[0]
    assert event["specversion"] == "1.0" and event["type"] == "nameservice.head.created", event
    assert all(event["type"].startswith("nameservice.head.") for event in events), events
    query = dict(TableName=outputs["feed_table_name"], KeyConditionExpression="id = :feed", ConsistentRead=True)
    rows = dynamodb.query(**query, ExpressionAttributeValues={":feed": {"S": "feed#0"}})["Items"]
    changes = []
    for row in rows:
        assert int(row["first"]["N"]) == len(changes) + 1, f"the feed has a gap before {row['first']}"
        changes += json.loads(gzip.decompress(row["changes"]["B"]))["changes"]
        assert int(row["position"]["S"]) == len(changes), f"the segment up to {row['position']} ends at {len(changes)}"
    mine = [(position, change) for position, change in enumerate(changes, 1) if change["address"] == "watched:main"]
    assert [change["concern"] for _, change in mine][-2:] == ["status", "head"], mine
    assert event["id"] == f"feed#0:{mine[-1][0]}", event
    listed = api.call("GET", "/v1/changes?address=watched", token=api.issuer.token("read")).expect(200)["changes"]
    assert listed[-1] == event["data"], (listed, event)
    history = api.call("GET", "/v1/history/watched", token=api.issuer.token("read")).expect(200)["changes"]
    assert [change["position"] for change in history] == [change["position"] for change in listed], history
    compared = api.call("POST", "/v1/changes/compare", {"subscriptions": {"watched:main": {"commit_t": 3}}}, token=api.issuer.token("read"))
    assert compared.expect(200)["changed"]["watched:main"]["head"] == head(4), compared.body
    sizes = sqs.get_queue_attributes(QueueUrl=outputs["dead_letter_queue_url"], AttributeNames=["ApproximateNumberOfMessages"])
    assert sizes["Attributes"]["ApproximateNumberOfMessages"] == "0", sizes
    sqs.delete_queue(QueueUrl=queue)
    return {"stream_consumer", "topic_publisher"}


def drive_event_stream(api, cloud, url_id):
    """The function URL. The emulator returns an answer once it has ended: a stream ends with its token."""
    url = Api(f"{cloud.url}/_aws/lambda-url/{url_id}", api.issuer)
    url.call("GET", "/v1/events").expect(401)
    url.call("GET", "/v1/events", token=api.issuer.token("nothing")).expect(403)
    for path, event in (
        ("/v1/events?after=0&address=watched&concern=head", "event: change"),
        ("/fluree/events?ledger=watched", "event: ns-record"),
        ("/v1/fluree/events?all=true", "event: ns-record"),
    ):
        # On a busy machine a function may not have started before its token ends.
        for seconds in (5, 20, 60):
            stream = url.call("GET", path, token=api.issuer.token("read", exp=int(time.time()) + seconds))
            seen = stream.status == 200 and event in stream.body and "watched:main" in stream.body
            if seen:
                break
        assert seen, f"{path}: {stream.status}: {str(stream.body)[:1000]}"
    return {"change_stream"}


def finish_mappings(functions, outputs):
    """Sets what the old provider cannot of the mappings of streams."""
    of_table = {"dynamodb": {"Keys": {"sk": {"S": ["meta", "head", "index", "status", "config"]}}}}
    of_feed = {"eventName": ["INSERT"], "dynamodb": {"Keys": {"id": {"S": ["feed#0"]}}}}
    for name, pattern, more in (
        ("stream_consumer", of_table, {"FunctionResponseTypes": ["ReportBatchItemFailures"]}),
        ("topic_publisher", of_feed, {}),
    ):
        function = outputs["function_names"][name]
        mappings = functions.list_event_source_mappings()["EventSourceMappings"]
        [mapping] = [mapping for mapping in mappings if f":{function}" in mapping["FunctionArn"]]
        functions.update_event_source_mapping(UUID=mapping["UUID"], FilterCriteria={"Filters": [{"Pattern": json.dumps(pattern)}]}, **more)
        wait_for("mapping", lambda: functions.get_event_source_mapping(UUID=mapping["UUID"])["State"] == "Enabled")


def finish(cloud, outputs):
    """Sets what the old provider cannot, and what only the emulator needs. Returns the function URL."""
    functions = cloud.client("lambda")
    # In AWS, PublishBatch needs the action sns:Publish; the emulator has an action of its own for it.
    batch = {"Effect": "Allow", "Action": "sns:PublishBatch", "Resource": outputs["topic_arn"]}
    cloud.client("iam").put_role_policy(
        RoleName=outputs["role_names"]["topic_publisher"], PolicyName="emulator",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [batch]}),
    )
    finish_mappings(functions, outputs)
    streams = {"FunctionName": outputs["function_names"]["change_stream"], "AuthType": "NONE"}
    url = functions.create_function_url_config(**streams, InvokeMode="RESPONSE_STREAM")["FunctionUrl"]
    for action, condition in (("InvokeFunctionUrl", {"FunctionUrlAuthType": "NONE"}), ("InvokeFunction", {"InvokedViaFunctionUrl": True})):
        functions.add_permission(
            FunctionName=streams["FunctionName"], StatementId=action, Action=f"lambda:{action}", Principal="*", **condition,
        )
    return url.removeprefix("https://").split(".")[0]


def roles_are_enforced(api, cloud, outputs):
    """Without its policy a function can do nothing: everything that it could do came from the policy."""
    iam = cloud.client("iam")
    role = outputs["role_names"]["record_get"]
    policy = iam.get_role_policy(RoleName=role, PolicyName="nameservice")["PolicyDocument"]
    iam.delete_role_policy(RoleName=role, PolicyName="nameservice")
    failed = api.call("GET", "/v1/records/mydb", token=api.issuer.token("read"))
    iam.put_role_policy(RoleName=role, PolicyName="nameservice", PolicyDocument=json.dumps(policy))
    assert failed.status in (500, 503), f"a function without permissions answers {failed.status}: {failed.body}"
    api.call("GET", "/v1/records/mydb", token=api.issuer.token("read")).expect(200)


def examined(api, cloud, program, outputs):
    """The smoke test of docs/aws.md. Here alarms notify nobody, and events would come once their stream has ended."""

    def doctor(*arguments):
        command = [program, "doctor", "--json", "--aws-deployment", api.url, *arguments]
        environment = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": cloud.url, "NAMESERVICE_TOKEN": api.issuer.token("admin")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.stdout, done.stderr
        return done.returncode, {finding["code"]: finding["what"] for finding in json.loads(done.stdout)["findings"]}

    status, found = doctor()
    assert (status, set(found)) == (0, {"alarms-silent"}), found
    gateway, api_id = cloud.client("apigatewayv2"), outputs["api_id"]
    [route] = [route for route in gateway.get_routes(ApiId=api_id)["Items"] if route["RouteKey"] == "GET /v1/branches/{address+}"]
    gateway.delete_route(ApiId=api_id, RouteId=route["RouteId"])
    alarm = next(name for name in outputs["alarm_names"] if name.endswith("iterator-age"))
    cloud.client("cloudwatch").set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a test")
    status, found = doctor()
    assert status == 1 and "GET /v1/branches/{address}" in found["route-missing"] and alarm in found["alarm-raised"], found
    status, found = doctor("--deployment-name", "another")
    assert status == 1 and "iterator-age" in found["alarms-missing"], found
    kept = {key: route[key] for key in ("RouteKey", "Target", "AuthorizationType", "AuthorizerId", "AuthorizationScopes") if key in route}
    gateway.create_route(ApiId=api_id, **kept)
    step("doctor finds nothing, and a route, alarms and their state if they are missing or raised")


class Writers:
    """Clients that create ledgers and push to them, for as long as it takes, and readers beside them."""

    def __init__(self, api):
        self.api, self.stop = api, threading.Event()
        # What was acknowledged: name, and when its request had begun and was answered.
        self.acknowledged, self.rejected, self.unread = [], [], []
        self.threads = [threading.Thread(target=self.write, args=(n,), daemon=True) for n in range(2)]
        self.threads.append(threading.Thread(target=self.read, daemon=True))
        for thread in self.threads:
            thread.start()

    def write(self, n):
        count = 0
        while not self.stop.is_set():
            name, begun = f"writer-{n}-{count}", time.monotonic()
            answer = self.api.call("POST", "/v1/ledgers", {"address": name}, token=self.api.issuer.token("write"))
            if answer.status == 201:
                self.acknowledged.append((name, begun, time.monotonic()))
            else:
                self.rejected.append((answer.status, begun, time.monotonic()))
                time.sleep(0.3)
            count += 1

    def read(self):
        silent = 0
        while not self.stop.is_set():
            begun = time.monotonic()
            answer = self.api.call("GET", "/v1/records/mydb", token=self.api.issuer.token("read"))
            # An answer that does not come may be a busy machine's; one that says no is the deployment's.
            silent = silent + 1 if answer.status == 0 else 0
            if answer.status not in (0, 200) or silent >= 5:
                self.unread.append((begun, answer.what, answer.status, answer.body))
            time.sleep(0.5)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(LONG)


def items(dynamodb, table):
    """Every item of a table, as text."""
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return {json.dumps(item, sort_keys=True, default=repr) for page in pages for item in page["Items"]}


def restored_beside_writers(api, cloud, deployment, outputs):
    """The runbook of a restore, by its script, while clients write: docs/aws.md."""
    dynamodb, restored = cloud.client("dynamodb"), f"{outputs['table_name']}-restored"
    token = api.issuer.token("read")
    position = api.call("GET", "/v1/changes", token=token).expect(200)["position"]
    writers = Writers(api)
    wait_for("writes before the restore", lambda: len(writers.acknowledged) > 20)
    command = [sys.executable, ROOT / "infra" / "restore.py", deployment.folder / "module", restored, "--yes"]
    environment = {**deployment.environment, "AWS_ENDPOINT_URL": cloud.url}
    script = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    at, said, frozen = {}, [], None
    for line in script.stdout:
        said.append(line)
        at.setdefault(line.partition(" ")[0], []).append(time.monotonic())
        if line.startswith("drain") and frozen is None:
            frozen = items(dynamodb, outputs["table_name"])
        if line.startswith("switch   all"):
            # Before the first record: without it a failure that the consumer reports is not repeated.
            finish_mappings(cloud.client("lambda"), outputs)
    assert script.wait() == 0, "".join(said)
    assert any("the topic has everything" in line for line in said), "".join(said)
    after = len(writers.acknowledged)
    wait_for("writes after the restore", lambda: len(writers.acknowledged) > after + 20)
    writers.end()
    # Between the end of the freeze and the last step no write is acknowledged; the last step lets functions write one after the other.
    between = [name for name, begun, _ in writers.acknowledged if at["freeze"][0] < begun and begun < at["switch"][0]]
    assert not between, f"acknowledged while frozen: {between}"
    assert items(dynamodb, outputs["table_name"]) == frozen, "the old table was written after the freeze"
    assert any(at["freeze"][0] < begun < at["switch"][0] for _, begun, _ in writers.rejected), "nobody wrote beside the restore"
    # While roles and functions change over one after the other, a function may not read its table for a moment.
    unread = [read for read in writers.unread if not at["restore"][0] < read[0] < at["thaw"][0]]
    assert not unread, f"reads failed: {unread[:3]}"
    there = {json.loads(item)["pk"]["S"] for item in items(dynamodb, restored)}
    lost = [name for name, *_ in writers.acknowledged if f"{name}:main" not in there]
    assert not lost, f"acknowledged, and not in the restored table: {lost}"
    # The feed begins again with what is written from now on, and tells a reader of the old one.
    late = [name for name, begun, _ in writers.acknowledged if begun > at["switch"][0]]
    assert late, "nothing was written after the thaw"

    def listed():
        changes = api.call("GET", "/v1/changes?after=0&limit=1000", token=token).expect(200)["changes"]
        names = {change["address"].removesuffix(":main") for change in changes}
        return changes if set(late) <= names else None

    changes = wait_for("feed with what was written after the restore", listed)
    assert changes[0]["position"] == 1 and not {"mydb:main", "watched:main"} & {change["address"] for change in changes}, changes[0]
    ahead = api.call("GET", f"/v1/changes?after={position + 100000}", token=token).expect(410)
    assert ahead["type"].endswith("/position-ahead"), ahead
    step(f"restored beside writers: {len(writers.acknowledged)} acknowledged, {len(writers.rejected)} rejected, frozen for {at['thaw'][0] - at['freeze'][0]:.0f} s")


def nothing_is_left(cloud):
    assert cloud.client("lambda").list_functions()["Functions"] == []
    # Those that a restore has left.
    for table in ("fluree-nameservice", "fluree-nameservice-feed"):
        cloud.client("dynamodb").delete_table(TableName=table)
    assert cloud.client("dynamodb").list_tables()["TableNames"] == []
    assert cloud.client("apigatewayv2").get_apis()["Items"] == []
    assert cloud.client("iam").list_roles()["Roles"] == []
    assert cloud.client("sns").list_topics()["Topics"] == []
    assert cloud.client("sqs").list_queues().get("QueueUrls", []) == []
    assert cloud.client("logs").describe_log_groups()["logGroups"] == []


def main():
    binaries, older_provider, tools, program = map(pathlib.Path, sys.argv[1:])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="deployment-"))
    cloud = None
    try:
        issuer = Issuer(folder)
        cloud = Cloud(pathlib.Path(sys.executable).parent / "ministack", folder, issuer)
        artifacts(binaries, folder, cloud)
        deployment = Deployment(folder, older_provider, tools, cloud, issuer)
        golden = (HERE / "dropped.txt").read_text()
        difference = difflib.unified_diff(golden.splitlines(), deployment.dropped.splitlines(), "dropped.txt", "now", lineterm="")
        assert deployment.dropped == golden, "what the old provider does not know has changed:\n" + "\n".join(difference)
        begun = time.monotonic()
        outputs = deployment.apply()
        step(f"applied in {time.monotonic() - begun:.0f} s: {len(outputs['function_names'])} functions")
        url_id = finish(cloud, outputs)
        # The emulator selects the gateway by path, AWS by host name.
        api_id = outputs["api_url"].removeprefix("https://").removeprefix("http://").split(".")[0]
        api = Api(f"{cloud.url}/_aws/execute-api/{api_id}/$default", issuer)
        driven = drive_open_routes(api) | drive_operations(api) | drive_fluree(api)
        step("every operation answers; without a token 401, with too small a scope 403")
        driven |= drive_changes(api, cloud, outputs)
        step("a push comes out at a queue with a filter policy, and in the feed")
        driven |= drive_event_stream(api, cloud, url_id)
        step("events are streamed at the function URL")
        roles_are_enforced(api, cloud, outputs)
        step("without its policy a function can do nothing")
        assert driven == set(outputs["function_names"]), driven ^ set(outputs["function_names"])
        examined(api, cloud, program, outputs)
        restored_beside_writers(api, cloud, deployment, outputs)
        # On a busy machine the table may not be available in time; what a role does not allow fails.
        silent = [line for line in cloud.log.read_text(errors="replace").splitlines() if "did not answer during init" in line]
        denied = [line for line in silent if "is not available for" not in line]
        assert not denied, f"a function may not open its connection: {denied[:3]}"
        begun = time.monotonic()
        cloud.client("iam").delete_role_policy(RoleName=outputs["role_names"]["topic_publisher"], PolicyName="emulator")
        deployment.destroy()
        nothing_is_left(cloud)
        step(f"destroyed in {time.monotonic() - begun:.0f} s, nothing is left")
    except BaseException:
        if cloud:
            print(cloud.log.read_text(errors="replace")[-6000:], file=sys.stderr)
        raise
    finally:
        if cloud:
            cloud.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
