/**
 * The symbol of `await using`, also where the platform has none yet; compilers look for it under
 * this name.
 */
export const asyncDispose: typeof Symbol.asyncDispose =
	(Symbol as { asyncDispose?: typeof Symbol.asyncDispose }).asyncDispose ??
	(Symbol.for("Symbol.asyncDispose") as unknown as typeof Symbol.asyncDispose);
