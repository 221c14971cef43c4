/** Makes the pictures of docs/guides/console.md, from a hub with traffic and a full pool. */
import { launch } from "../../client/test/chromium.js";
import { Hub, ROOT } from "../../client/test/python.js";
import { Traffic } from "./traffic.js";

const SIZE = { width: 1280, height: 620 };
/** Sparklines are worth a look after this time. */
const HISTORY_MS = 60_000;

const hub = await Hub.start(["--http", "127.0.0.1:0", "--console-admin", "--name", "shop"]);
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
await browser.close();
traffic.stop();
await hub.stop();
