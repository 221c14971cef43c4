/** Makes the pictures of docs/guides/console.md, from a hub with traffic and a full pool. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { launch } from "../../client/test/chromium.js";
import { Hub, ROOT } from "../../client/test/python.js";
import { orders, sell, Traffic } from "./traffic.js";

const SIZE = { width: 1280, height: 620 };
/** Sparklines are worth a look after this time. */
const HISTORY_MS = 60_000;

const data = mkdtempSync(`${tmpdir()}/tidewire-`);
const hub = await Hub.start(["--http", "127.0.0.1:0", "--console-admin", "--name", "shop", "--data", data]);
const traffic = await Traffic.start(hub.url);
const browser = await launch();
const page = await browser.newPage({ viewport: SIZE });
await page.goto(`${hub.http}/console/`);
await page.waitForTimeout(HISTORY_MS);
traffic.say("fail");
traffic.say("block");
await page.getByText(/workers busy/).waitFor();
await page.getByText(/calls failed/).waitFor();
await page.waitForTimeout(HISTORY_MS / 10);
await page.screenshot({ path: `${ROOT}docs/pictures/console-overview.png` });
await page.getByRole("link", { name: "Pools" }).click();
await page.getByRole("button", { name: "risk" }).click();
await page.getByRole("heading", { name: "Workers" }).waitFor();
await page.screenshot({ path: `${ROOT}docs/pictures/console-pools.png` });
const node = await orders(hub.url, "express");
await page.getByRole("link", { name: "Dead letters" }).click();
await page.getByRole("button", { name: "no customer" }).click();
await page.getByRole("button", { name: "3", exact: true }).click();
await page.getByText("express").last().waitFor();
await page.screenshot({ path: `${ROOT}docs/pictures/console-dead-letters.png` });
const limits = await node.kv("limits", { history: 5 });
for (const [at, key] of ["asia", "europe", "europe", "oceania"].entries()) {
	await limits.put(key, { orders: 100 * (at + 1), currency: "EUR" });
}
await page.getByRole("link", { name: "Key-value" }).click();
await page.getByRole("button", { name: "limits" }).click();
await page.getByRole("button", { name: "europe" }).click();
await page.getByRole("region", { name: "History" }).waitFor();
await page.screenshot({ path: `${ROOT}docs/pictures/console-keys.png` });
traffic.say("fix");
await traffic.ask("services");
const shop = await Traffic.start(hub.url, "shop");
await page.setViewportSize({ ...SIZE, height: 860 });
await page.goto(`${hub.http}/console/#/trace/${await sell(hub.url, "tea")}`);
await page.getByRole("button", { name: "process sales.new" }).click();
await page.getByText("ValueError: no account of tea").waitFor();
await page.screenshot({ path: `${ROOT}docs/pictures/console-trace.png` });
shop.stop();
await node.close();
await browser.close();
traffic.stop();
await hub.stop();
rmSync(data, { recursive: true });
