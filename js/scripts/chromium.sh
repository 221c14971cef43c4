#!/usr/bin/env bash
# Installs Debian's Chromium, if no Chromium is there, for the tests of the client in a real browser.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
	if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" != 0 ]; then
	echo "the tests in a browser need Chromium: sudo apt-get install chromium"
	exit 1
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium >/dev/null
