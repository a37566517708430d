#!/bin/sh
# Make sure that there is a JDK 17 or newer, installing one by the system's package manager if not.
set -eu

version() {
    # "17.0.15" -> 17; empty if there is no working java
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

have=$(version || true)
if [ -n "$have" ] && [ "$have" -ge 17 ]; then
    exit 0
fi

as_root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 && as_root="sudo"
fi

echo "Spark needs a JDK 17 or newer (found: ${have:-none}); installing one ..."
if command -v apt-get >/dev/null 2>&1; then
    $as_root apt-get update -qq && {
        $as_root apt-get install -y -qq openjdk-17-jre-headless ||
            $as_root apt-get install -y -qq openjdk-21-jre-headless
    } || true
elif command -v dnf >/dev/null 2>&1; then
    $as_root dnf install -y -q java-17-openjdk-headless || $as_root dnf install -y -q java-21-openjdk-headless || true
elif command -v apk >/dev/null 2>&1; then
    $as_root apk add --quiet openjdk17-jre-headless || true
elif command -v pacman >/dev/null 2>&1; then
    $as_root pacman -S --noconfirm --quiet jre17-openjdk-headless || true
elif command -v brew >/dev/null 2>&1; then
    brew install --quiet openjdk@17 || true
fi

have=$(version || true)
if [ -z "$have" ] || [ "$have" -lt 17 ]; then
    echo "Could not install a JDK. Please install JDK 17 or newer (Debian, Ubuntu: apt-get install"
    echo "openjdk-17-jre-headless; macOS: brew install openjdk@17) and set JAVA_HOME to it, then try again."
    exit 1
fi
