/** Which authorities the client trusts: those that its README says. */
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:https";
import { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { timeout } from "./support.js";

test("a service whose authority an option of Node names is trusted, and SSL_CERT_FILE alone is not read and said so", { timeout }, async (context) => {
  const directory = mkdtempSync(join(tmpdir(), "nameservice-"));
  context.after(() => rmSync(directory, { recursive: true }));
  const [key, cert] = [join(directory, "key"), join(directory, "cert")];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
  const made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", key, "-out", cert];
  execFileSync("openssl", [...made, ...subject], { stdio: "ignore" });
  const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (_, response) => {
    response.setHeader("content-type", "application/json").end("{}");
  });
  await once(server.listen(0, "localhost"), "listening");
  context.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const program = `
    import { Nameservice } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const names = new Nameservice({ url: "https://localhost:${port}", deadline: 0 });
    const failed = (error) => error.message;
    console.log(await names.api.GET("/v1/health").then(() => "trusted", failed));`;
  const run = async (variables: Record<string, string>, options: string[] = []) => {
    const own = ["NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "SSL_CERT_FILE", "SSL_CERT_DIR"];
    const env = { ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !own.includes(name))), ...variables };
    const child = execFile(process.execPath, [...options, "--input-type=module", "--eval", program], { env });
    let printed = "";
    child.stdout?.on("data", (text: string) => (printed += text));
    await once(child, "close");
    return printed.trim();
  };
  assert.equal(await run({ NODE_EXTRA_CA_CERTS: cert }), "trusted");
  assert.equal(await run({ SSL_CERT_FILE: cert }, ["--use-openssl-ca"]), "trusted");
  assert.equal(await run({ SSL_CERT_FILE: cert, NODE_OPTIONS: "--use-openssl-ca" }), "trusted");
  assert.match(await run({ SSL_CERT_FILE: cert }), /Node does not read SSL_CERT_FILE: name the file in NODE_EXTRA_CA_CERTS/);
  assert.doesNotMatch(await run({}), /SSL_CERT_FILE|^trusted/);
});
