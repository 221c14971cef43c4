/** The platform's `WebSocket`. Under Node, `package.json` puts the package `ws` in its place. */

/** A constructor; only `ws` takes its own options, and platforms ignore them. */
type Constructor = new (url: string, protocol: string, options: object) => WebSocket;

const platform = globalThis.WebSocket as Constructor;

export { platform as WebSocket };
