/** The compiler of TypeScript, as programs of users have it. */
import assert from "node:assert/strict";
import ts from "typescript";

/** Errors of `tsc --strict` in each file. */
export function problems(files: readonly string[], more: ts.CompilerOptions = {}): string[][] {
	const options: ts.CompilerOptions = {
		strict: true,
		noEmit: true,
		target: ts.ScriptTarget.ES2022,
		module: ts.ModuleKind.NodeNext,
		moduleResolution: ts.ModuleResolutionKind.NodeNext,
		lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts", "lib.dom.d.ts"],
		types: [],
		...more,
	};
	const found = ts.getPreEmitDiagnostics(ts.createProgram(files, options));
	assert.ok(found.every(({ file }) => files.includes(file?.fileName ?? "")));
	return files.map((name) =>
		found
			.filter(({ file }) => file?.fileName === name)
			.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n")),
	);
}
