/** Context variable of Node, Deno and Bun, which survives `await`. */
export { AsyncLocalStorage as ContextVariable } from "node:async_hooks";
