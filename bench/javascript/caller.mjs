/**
 * The caller of `tidewire bench rpc --only javascript`: one contender, one workload.
 *
 *     node caller.mjs tidewire --url URL --workload small-seq --count 2000 --rounds 3 --watch service=PID
 *
 * Prints one line with its figures for each round.
 */
import { parseArgs } from "node:util";
import { CONTENDERS } from "./contenders.mjs";
import { Usage } from "./usage.mjs";
import { run } from "./workloads.mjs";

const { positionals, values } = parseArgs({
	allowPositionals: true,
	options: {
		url: { type: "string" },
		form: { type: "string", default: "" },
		workload: { type: "string", default: "small-seq" },
		count: { type: "string", default: "100" },
		rounds: { type: "string", default: "1" },
		watch: { type: "string", multiple: true, default: [] },
	},
});
const count = Number(values.count);
// What packages print goes to standard error: standard output is for figures.
console.log = console.info = console.error;
const link = await CONTENDERS[positionals[0]](values.url);
// A page runs the workload itself.
const play = link.run ?? ((workload, calls) => run(link, workload, calls));
await play(values.workload, Math.max(1, Math.floor(count / 10)));
const usage = new Usage({ caller: link.pid ?? process.pid, ...Object.fromEntries(values.watch.map((one) => one.split("="))) });
for (let round = 0; round < Number(values.rounds); round++) {
	usage.start();
	const figures = await play(values.workload, count);
	process.stdout.write(`${JSON.stringify({ workload: values.workload, figures: { ...figures, ...usage.figures(count) } })}\n`);
}
await link.close?.();
process.exit(0);
