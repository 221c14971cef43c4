/**
 * The blocks of the guide and of the package's README: TypeScript holds them to the types, and each
 * runs beside a hub with the guide's services.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, before } from "node:test";
import { transformSync } from "esbuild";
import { problems } from "./programs/compiler.js";
import { Hub, Peer, ROOT } from "./python.js";

const FOLDER = `${ROOT}js/packages/client/build/guide`;
const URL_OF_GUIDE = "ws://127.0.0.1:7421";
const pages = ["docs/guides/javascript.md", "docs/guides/traces.md", "js/packages/client/README.md"].map((page) =>
	readFileSync(`${ROOT}${page}`, "utf8"),
);
const blocks = [...pages.join("\n").matchAll(/```ts\n(.*?)```/gs)].map(([, block]) => block as string);
const folder = mkdtempSync(join(tmpdir(), "tidewire-"));
let hub: Hub;
let server: Peer;

before(async () => {
	mkdirSync(FOLDER, { recursive: true });
	hub = await Hub.start(["--data", folder]);
	server = await Peer.start("server", hub.url);
});

after(async () => {
	await server?.stop();
	await hub?.stop();
	rmSync(folder, { recursive: true });
});

test("the guide has blocks", () => {
	assert.ok(blocks.length >= 6);
});

test("all blocks are held to the types", () => {
	const files = blocks.map((block, at) => {
		writeFileSync(`${FOLDER}/block${at}.ts`, block);
		return `${FOLDER}/block${at}.ts`;
	});
	assert.deepEqual(problems(files, { types: ["node"] }).flat(), []);
});

for (const [at, block] of blocks.entries()) {
	test(`block ${at + 1} runs`, () => {
		const source = block.replaceAll(URL_OF_GUIDE, hub.url);
		const { code } = transformSync(source, { loader: "ts", format: "esm", target: "es2022" });
		const file = `${FOLDER}/block${at}.mjs`;
		writeFileSync(file, code);
		execFileSync(process.execPath, [file], { timeout: 20_000, stdio: ["ignore", "ignore", "inherit"] });
	});
}
