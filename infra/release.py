#!/usr/bin/env python3
"""Shifts the callers of a deployment with `aliases` to the versions of its functions that an apply has published, and back.

    infra/release.py status NAME
    infra/release.py shift NAME PERCENT    a part of the requests to the newest versions; again with more, or less
    infra/release.py finish NAME           all requests to the newest versions
    infra/release.py back NAME             all requests to the versions that had them; after `finish`, to those before

NAME is the deployment's, such as `nameservice`. A release works beside the one before it, and both over the same table, so functions may
be shifted in any order. The consumers of streams and queues are shifted by invocations, as the others. Needs the AWS CLI.
"""

import argparse
import json
import os
import subprocess
import sys

ALIAS = "live"


def aws(*command):
    done = subprocess.run(["aws", "lambda", *command, "--output", "json"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"aws lambda {' '.join(command)}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout) if done.stdout.strip() else None


class Function:
    """A function, the version that its callers invoke, and the part of them that invokes another."""

    def __init__(self, name):
        self.name = name
        alias = aws("get-alias", "--function-name", name, "--name", ALIAS)
        self.version = int(alias["FunctionVersion"])
        self.weights = (alias.get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
        versions = aws("list-versions-by-function", "--function-name", name)["Versions"]
        self.versions = sorted(int(version["Version"]) for version in versions if version["Version"] != "$LATEST")

    @property
    def newest(self):
        return self.versions[-1]

    def move(self, version, weights):
        routing = json.dumps({"AdditionalVersionWeights": weights})
        aws("update-alias", "--function-name", self.name, "--name", ALIAS, "--function-version", str(version), "--routing-config", routing)
        self.version, self.weights = version, weights

    def shift(self, percent):
        if self.newest != self.version:
            self.move(self.version, {str(self.newest): percent / 100} if percent else {})

    def finish(self):
        if self.newest != self.version or self.weights:
            self.move(self.newest, {})

    def back(self):
        earlier = [version for version in self.versions if version < self.version]
        if self.weights:
            self.move(self.version, {})
        elif earlier and self.version == self.newest:
            self.move(earlier[-1], {})

    def __str__(self):
        parts = "".join(f", {weight:.0%} of the requests {version}" for version, weight in self.weights.items())
        return f"{self.name}: version {self.version} of {self.newest}{parts}"


def functions(name):
    names = [function["FunctionName"] for function in aws("list-functions")["Functions"]]
    found = sorted(function for function in names if function.startswith(f"{name}-"))
    if not found:
        sys.exit(f"there is no deployment {name} in this account and region")
    return [Function(function) for function in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["status", "shift", "finish", "back"])
    parser.add_argument("name")
    parser.add_argument("percent", nargs="?", type=int, choices=range(0, 101), metavar="PERCENT")
    arguments = parser.parse_args()
    if (arguments.command == "shift") != (arguments.percent is not None):
        parser.error("PERCENT goes with shift")
    os.environ["AWS_PAGER"] = ""
    for function in functions(arguments.name):
        if arguments.command == "shift":
            function.shift(arguments.percent)
        elif arguments.command != "status":
            getattr(function, arguments.command)()
        print(function)


if __name__ == "__main__":
    main()
