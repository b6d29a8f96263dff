#!/usr/bin/env python3
"""Restores the nameservice table to a point in time, and switches a deployment over to it.

    infra/restore.py CONFIGURATION TABLE [--at 2026-11-21T06:00:00Z] [--set NAME=JSON]... [--yes]

CONFIGURATION is the folder of the Terraform configuration that uses the module `nameservice`. It has two variables that it passes to the
module, `table_name` and `frozen`, as examples/complete has. TABLE is the name of the restored table. Needs terraform and the AWS CLI.

No two tables accept writes at any moment, and nothing that was acknowledged once writes are accepted again is lost:

 1. freeze    every function that writes the table is throttled to nothing; callers get 503, and reads continue until the switch
 2. drain     what runs has ended, and the feed has what was written
 3. restore   the table as it was at that time, by default now
 4. switch    Terraform forgets the old tables, and takes over the restored one; functions, stream, feed and read model are those of the new
              table, while everything that writes is still throttled
 5. thaw      everything may write again

It can be repeated after a failure: each step looks at what is done already. The old tables stay. What is set here is kept in
restore.auto.tfvars.json in the configuration: commit it, or move its values to where the others are.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from release import ALIAS, Function

SETTINGS = "restore.auto.tfvars.json"
# The tables of the module, by the end of their address in the state.
TABLE, FEED, VIEWS = "aws_dynamodb_table.this[0]", "aws_dynamodb_table.feed", "module.views[0].aws_dynamodb_table.this"
WRITES = {"dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
# How long the feed's last position has to stay the same until everything is in it.
QUIET_SECONDS = 20
# How long the topic may take to get what is in the feed.
TOPIC_SECONDS = 300


def say(step, text):
    print(f"{step:8} {text}", flush=True)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def aws(*command):
    output = run("aws", *command, "--output", "json")
    return json.loads(output) if output.strip() else None


class Configuration:
    """A Terraform configuration, its state, and what this program sets in it."""

    def __init__(self, folder, yes):
        self.folder, self.yes = pathlib.Path(folder), yes
        self.file = self.folder / SETTINGS
        self.settings = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.known = None

    def terraform(self, *command):
        # Whatever it is, the state may be another one afterwards.
        self.known = None
        return run("terraform", f"-chdir={self.folder}", *command)

    def set(self, **settings):
        self.settings.update(settings)
        self.file.write_text(json.dumps(self.settings, indent=2) + "\n")

    def resources(self):
        """Returns the values of all resources in the state, by address."""
        if self.known:
            return self.known
        found = {}

        def collect(module):
            found.update({resource["address"]: resource["values"] for resource in module.get("resources", []) if resource["mode"] == "managed"})
            for child in module.get("child_modules", []):
                collect(child)

        collect(json.loads(self.terraform("show", "-json")).get("values", {}).get("root_module", {}))
        self.known = found
        return found

    def named(self, end):
        """Returns the address of the one resource whose address ends like this, and its values; None if there is none."""
        found = [(address, values) for address, values in self.resources().items() if address == end or address.endswith("." + end)]
        if len(found) > 1:
            sys.exit(f"the configuration has several deployments: {', '.join(address for address, _ in found)}")
        return found[0] if found else None

    def prefix(self):
        """What the addresses of the module's resources begin with."""
        return next(address for address in self.resources() if ".aws_lambda_function.this[" in "." + address).partition("aws_lambda_function.")[0]

    def apply(self):
        """Applies the configuration, unless a table would be deleted."""
        plan = self.folder / ".restore.tfplan"
        try:
            self.terraform("plan", "-input=false", "-no-color", f"-out={plan.resolve()}")
            changes = json.loads(self.terraform("show", "-json", str(plan.resolve())))["resource_changes"]
            lost = [change["address"] for change in changes if change["type"] == "aws_dynamodb_table" and "delete" in change["change"]["actions"]]
            if lost:
                sys.exit(f"the plan deletes tables, so it is not applied: {', '.join(lost)}")
            for change in changes:
                if not self.yes and change["change"]["actions"] not in (["no-op"], ["read"]):
                    print(f"         {'+'.join(change['change']['actions'])} {change['address']}")
            if not self.yes and input("apply? [yes] ") != "yes":
                sys.exit("not applied")
            self.terraform("apply", "-input=false", "-no-color", "-parallelism=40", str(plan.resolve()))
        finally:
            plan.unlink(missing_ok=True)


def writers(configuration):
    """The names of the functions that write the table for callers: those with a route, whose role may change items of the table."""
    resources = configuration.resources()
    functions = {address: values for address, values in resources.items() if ".aws_lambda_function.this[" in "." + address}
    policies = {values["role"]: values["policy"] for address, values in resources.items() if ".aws_iam_role_policy.this[" in "." + address}
    arn = configuration.named(TABLE)[1]["arn"]
    found = []
    for values in functions.values():
        statements = json.loads(policies[values["role"].rsplit("/", 1)[1]])["Statement"]
        if any(statement["Resource"] == arn and WRITES & set(statement["Action"]) for statement in statements):
            found.append(values["function_name"])
    return sorted(found)


def freeze(configuration):
    for function in writers(configuration):
        aws("lambda", "put-function-concurrency", "--function-name", function, "--reserved-concurrent-executions", "0")
    say("freeze", "nothing is written any more")


def wait_for_topic(configuration, feed, last):
    """What the topic has not published when the feed is replaced, it never will."""
    if not any(".aws_sns_topic.changes[" in "." + address for address in configuration.resources()):
        return
    reached, since = None, time.monotonic()
    while time.monotonic() - since < TOPIC_SECONDS:
        key = {"id": {"S": "sink#0"}, "position": {"S": "topic"}}
        # The command prints nothing for a row that does not exist.
        row = (aws("dynamodb", "get-item", "--table-name", feed, "--key", json.dumps(key), "--consistent-read") or {}).get("Item")
        reached = int(row["reached"]["N"]) if row else None
        if last == 0 or reached is not None and reached >= last:
            say("drain", "the topic has everything")
            return
        time.sleep(1)
    what = "NOTHING SINCE ITS PUBLISHER WAS DEPLOYED" if reached is None else f"EVERYTHING UP TO {reached} ONLY"
    say("drain", f"THE TOPIC HAS {what}, and will not get what is missing: its subscribers read a snapshot")


def drain(configuration, longest):
    feed = configuration.named(FEED)[1]["name"]
    # What has begun may still write.
    time.sleep(longest)
    last, since = None, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        rows = aws(
            "dynamodb", "query", "--table-name", feed, "--key-condition-expression", "id = :feed", "--consistent-read", "--no-scan-index-forward",
            "--max-items", "1", "--projection-expression", "#p", "--expression-attribute-names", json.dumps({"#p": "position"}),
            "--expression-attribute-values", json.dumps({":feed": {"S": "feed#0"}}),
        )
        now = rows["Items"][0]["position"]["S"] if rows["Items"] else "0"
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(1)
    say("drain", f"the feed ends at {int(last)}")
    wait_for_topic(configuration, feed, int(last))
    # From here on the consumer and the sinks are throttled, too: what they write must be of the new table alone.
    configuration.set(frozen=True)
    configuration.apply()
    say("drain", "consumer and sinks stand still")


def restore(source, table, at):
    exists = subprocess.run(["aws", "dynamodb", "describe-table", "--table-name", table], capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    if not exists:
        when = ["--restore-date-time", at] if at else ["--use-latest-restorable-time"]
        aws("dynamodb", "restore-table-to-point-in-time", "--source-table-name", source, "--target-table-name", table, *when)
    described = active(table)
    # Terraform has to know the stream's ARN when it plans the mapping that reads it.
    if not described.get("StreamSpecification", {}).get("StreamEnabled"):
        aws("dynamodb", "update-table", "--table-name", table, "--stream-specification", "StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES")
        active(table)
    say("restore", f"{table} is there, with a stream")


def active(table):
    """Returns the description of a table once it is active."""
    while (described := aws("dynamodb", "describe-table", "--table-name", table)["Table"])["TableStatus"] != "ACTIVE":
        time.sleep(10)
    return described


def switch(configuration, table):
    # The old tables stay, protected from deletion: only the state forgets them.
    before = [found for found in map(configuration.named, (TABLE, FEED, VIEWS)) if found]
    old = [address for address, values in before if values["name"] not in (table, f"{table}-feed", f"{table}-views")]
    configuration.set(table_name=table)
    if old:
        configuration.terraform("state", "rm", *old)
    if not configuration.named(TABLE):
        configuration.terraform("import", "-input=false", "-no-color", configuration.prefix() + TABLE, table)
    configuration.apply()
    functions = {values["function_name"]: values for address, values in configuration.resources().items() if ".aws_lambda_function.this[" in "." + address}
    live = any(".aws_lambda_alias.live[" in "." + address for address in configuration.resources())
    for name in functions:
        if live:
            # The versions before use the old table.
            Function(name).finish()
        qualifier = ["--qualifier", ALIAS] if live else []
        uses = aws("lambda", "get-function-configuration", "--function-name", name, *qualifier)["Environment"]["Variables"]["NAMESERVICE_TABLE"]
        if uses != table:
            sys.exit(f"{name} uses {uses}")
    say("switch", f"all functions use {table}, its feed begins again at 1")


def thaw(configuration):
    configuration.set(frozen=False)
    configuration.apply()
    say("thaw", "writes are accepted")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration")
    parser.add_argument("table")
    parser.add_argument("--at", metavar="TIME", help="the time to restore, by default now")
    parser.add_argument("--set", metavar="NAME=JSON", action="append", default=[], help="sets another variable with the table, such as a new prefix for the archive")
    parser.add_argument("--longest", metavar="SECONDS", type=int, default=30, help="how long a request may run that has begun before the freeze")
    parser.add_argument("--yes", action="store_true", help="apply without asking")
    arguments = parser.parse_args()
    os.environ.update(TF_IN_AUTOMATION="1", AWS_PAGER="")
    configuration = Configuration(arguments.configuration, arguments.yes)
    source = configuration.named(TABLE)
    if not source and configuration.settings.get("table_name") != arguments.table:
        sys.exit("the configuration has no table of its own: who owns it restores it")
    if source and source[1]["name"] != arguments.table:
        if not configuration.settings.get("frozen"):
            freeze(configuration)
            drain(configuration, arguments.longest)
        restore(source[1]["name"], arguments.table, arguments.at)
        for setting in arguments.set:
            name, value = setting.split("=", 1)
            configuration.set(**{name: json.loads(value)})
    switch(configuration, arguments.table)
    thaw(configuration)


if __name__ == "__main__":
    main()
