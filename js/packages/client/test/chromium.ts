/** Chromium, as the tests start it. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const CHROMIUM = ["chromium", "chromium-browser", "google-chrome"].map((name) => `/usr/bin/${name}`).find(existsSync);

export function launch(): Promise<Browser> {
	assert.ok(CHROMIUM, "the tests in a browser need Chromium: js/scripts/chromium.sh installs it");
	return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
}
