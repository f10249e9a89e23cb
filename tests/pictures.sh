#!/bin/sh
# Pictures of the status page of a demonstration, at two widths, light and dark, by a headless Chromium. On a phone (390 pixels)
# nothing may need horizontal scrolling.
#
#     tests/pictures.sh KSTATD DIR
#
# KSTATD is a program with `demo`. The pages may say nothing on the console and ask nobody else for anything. DIR/readme.png
# is docs/status.png, the picture of the README.
set -eu
program=$1 out=$2
chromium=${CHROMIUM:-chromium}
mkdir -p "$out"
work=$(mktemp -d)
# Ports of its own, so that a demonstration that runs already is left alone.
main=127.0.0.1:18080 telemetry=127.0.0.1:18081
"$program" demo --pods 2000 --churn 60 --listen $main --telemetry-listen $telemetry --statsd-listen 127.0.0.1:19125 \
    > "$work/demo.log" 2>&1 &
demo=$!
trap 'kill $demo 2>/dev/null; wait $demo 2>/dev/null || true; rm -rf "$work"' EXIT
deadline=$(($(date +%s) + 120))
until "$program" status --addr $main > "$work/status" 2>&1; do
    [ "$(date +%s)" -lt $deadline ] || { cat "$work/demo.log" "$work/status"; exit 1; }
    sleep 1
done
# So that there is something to draw: a value comes every 15 s.
sleep "${HISTORY_SECONDS:-60}"
picture() { # NAME WIDTH HEIGHT SCHEME(0 dark, 1 light) ADDRESS
    "$chromium" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$work/profile-$1" \
        --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' --blink-settings=preferredColorScheme="$4" \
        --enable-logging=stderr --window-size="$2,$3" --screenshot="$out/$1.png" "http://$5/status" 2> "$work/$1.log"
    if grep -E 'CONSOLE|ERR_NAME_NOT_RESOLVED' "$work/$1.log"; then
        echo "$1: the page is not quiet" >&2
        exit 1
    fi
}
# A phone is a frame, because a window of Chromium has at least 500 pixels.
phone() { # NAME SCHEME ADDRESS
    curl --silent --header 'Accept: text/html' "http://$3/status" > "$work/$1-page.html"
    cat > "$work/$1.html" <<END
<body style="margin:0"><iframe src="$1-page.html" style="width:390px;height:4200px;border:0" onload="
const wide = [...this.contentDocument.querySelectorAll('html,.scroll')].filter(one => one.scrollWidth > one.clientWidth);
document.body.dataset.wide = wide.map(one => one.textContent.slice(0, 60)).join('; ') || 'nothing'"></iframe>
END
    for wanted in --screenshot="$out/$1.png" --dump-dom; do
        "$chromium" --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars \
            --user-data-dir="$work/profile-$1" --host-resolver-rules='MAP * ~NOTFOUND' --allow-file-access-from-files \
            --blink-settings=preferredColorScheme="$2" --window-size=500,4200 "$wanted" "file://$work/$1.html" > "$work/$1-dom" 2> "$work/$1.log"
    done
    grep -q 'data-wide="nothing"' "$work/$1-dom" || { grep -o 'data-wide="[^"]*"' "$work/$1-dom" >&2; echo "$1: the page is too wide" >&2; exit 1; }
}
picture readme 1000 1000 1 $main
picture wide-light 1600 2600 1 $main
picture wide-dark 1600 2600 0 $telemetry
phone phone-light 1 $main
phone phone-dark 0 $telemetry
