/** The size of what a page loads, and what the package is made of. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import test from "node:test";
import { gzipSync } from "node:zlib";
import { type BuildResult, build } from "esbuild";
import { ROOT } from "./python.js";

const CLIENT = `${ROOT}js/packages/client/`;
/**
 * Largest bytes that a page loads at first, at first from `tidewire/connect`, and in all for a
 * page that uses everything.
 */
const FIRST_BYTES_MAX = 28_000;
const CALLS_BYTES_MAX = 25_000;
const ALL_BYTES_MAX = 48_200;

async function built(source: string, splitting: boolean): Promise<BuildResult<{ write: false; metafile: true }>> {
	return build({
		stdin: { contents: source, resolveDir: CLIENT, loader: "js" },
		bundle: true,
		splitting,
		minify: true,
		format: "esm",
		platform: "browser",
		target: "es2022",
		tsconfigRaw: "{}",
		outdir: "out",
		metafile: true,
		write: false,
	});
}

function gzipped(bytes: Uint8Array | undefined): number {
	return gzipSync(bytes ?? new Uint8Array(), { level: 9 }).length;
}

/** Compressed size of a bundle in one file. */
async function bundled(source: string): Promise<number> {
	return gzipped((await built(source, false)).outputFiles[0]?.contents);
}

/** Compressed size of the first files, and of all, where a bundler splits the code. */
async function split(source: string): Promise<[first: number, all: number]> {
	const { outputFiles, metafile } = await built(source, true);
	const bytes = new Map(outputFiles.map(({ path, contents }) => [basename(path), gzipped(contents)]));
	const first = new Set<string>();
	const add = (path: string): void => {
		if (!first.has(path)) {
			first.add(path);
			for (const { path: other, kind } of metafile.outputs[path]?.imports ?? []) {
				if (kind === "import-statement") {
					add(other);
				}
			}
		}
	};
	add("out/stdin.js");
	const sum = (names: Iterable<string>): number => [...names].reduce((all, name) => all + (bytes.get(name) ?? 0), 0);
	return [sum([...first].map((path) => basename(path))), sum(bytes.keys())];
}

test("what a page loads stays within its bounds, minified and compressed", async (t) => {
	const [first, all] = await split('export * from "tidewire";');
	const whole = await bundled('export * from "tidewire";');
	const [calls, more] = await split('export { connect } from "tidewire";');
	const [least] = await split('export { connect } from "tidewire/connect";');
	t.diagnostic(`${first} bytes at first, ${all} in all; ${whole} as one file`);
	t.diagnostic(
		`with connect alone: ${calls} bytes at first, ${least} from tidewire/connect; ${more - calls} when more is needed`,
	);
	assert.ok(least <= CALLS_BYTES_MAX, `${least} bytes from tidewire/connect`);
	assert.ok(calls < first, `${calls} bytes with connect alone`);
	assert.ok(first <= FIRST_BYTES_MAX, `${first} bytes at first`);
	assert.ok(all <= ALL_BYTES_MAX, `${all} bytes in all`);
	assert.ok(whole <= ALL_BYTES_MAX, `${whole} bytes as one file`);
});

test("what is not used is left out", async () => {
	assert.ok((await bundled('export { UUID } from "tidewire";')) < 3_000);
});

test("the package has its license, and source maps with the sources", () => {
	assert.equal(readFileSync(`${CLIENT}LICENSE`, "utf8"), readFileSync(`${ROOT}LICENSE`, "utf8"));
	const listed = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
		cwd: CLIENT,
		encoding: "utf8",
	});
	const [packed] = JSON.parse(listed) as [{ files: { path: string }[] }];
	const files = new Set(packed.files.map(({ path }) => path));
	assert.ok(files.has("LICENSE") && files.has("dist/tidewire.min.js.map"));
	for (const file of [...files].filter((name) => name.endsWith(".js"))) {
		assert.ok(files.has(`${file}.map`), file);
		const map = JSON.parse(readFileSync(`${CLIENT}${file}.map`, "utf8")) as { sourcesContent?: string[] };
		assert.ok(
			map.sourcesContent?.every((text) => text.length > 0),
			file,
		);
	}
});

test("it depends on ws alone, which no bundle for pages contains", async () => {
	const { dependencies } = JSON.parse(readFileSync(`${CLIENT}package.json`, "utf8")) as { dependencies: object };
	assert.deepEqual(Object.keys(dependencies), ["ws"]);
	const { metafile } = await built('export * from "tidewire";', false);
	assert.deepEqual(
		Object.keys(metafile.inputs).filter((path) => /node_modules[/]ws[/]/.test(path)),
		[],
	);
});
