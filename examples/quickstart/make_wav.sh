#!/bin/sh
# Makes speech.wav: three spoken phrases with pauses between, 16 kHz, mono, 16 bits.
#
#   ./make_wav.sh [OUT]        OUT: default speech.wav beside this script
#
# Needs espeak-ng and sox (Debian: apt-get install espeak-ng sox).  The pauses hold low noise rather than zeros, as a
# microphone's would.  The same versions of both programs give the same bytes.
# shellcheck disable=SC2086  # $form is a list of options
set -eu
out=${1:-$(dirname "$0")/speech.wav}
for tool in espeak-ng sox; do
    command -v "$tool" > /dev/null || { echo "make_wav.sh: $tool is not installed (Debian: apt-get install $tool)" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

form="-r 16000 -b 16 -c 1"
# -R fixes the seed of the noise, -D leaves out the (randomly seeded) dither.
SOX="sox -R -D"
say() {
    espeak-ng -v "$voice" -s "$2" -p "$3" -w "$work/said.wav" "$4"
    # Silence at both ends goes, so that the pauses below are what they say.
    $SOX "$work/said.wav" $form "$work/$1.wav" silence 1 0.01 0.5% reverse silence 1 0.01 0.5% reverse gain -n -4
}
pause() { $SOX -n $form "$work/$1.wav" trim 0 "$2"; }

voice=en-us
say 2 150 50 "The kettle is on, and the window is open."
say 4 165 45 "Please turn the lights down a little."
say 6 140 55 "Thank you, good night."
pause 1 0.8
pause 3 1.2
pause 5 1.0
pause 7 0.7
$SOX "$work"/[1-7].wav "$work/clean.wav"
$SOX -n $form "$work/noise.wav" synth "$(soxi -D "$work/clean.wav")" pinknoise vol 0.004
$SOX -m -v 1 "$work/clean.wav" -v 1 "$work/noise.wav" -b 16 "$out"
soxi -D "$out" | awk '{ if ($1 > 10) { print "make_wav.sh: longer than 10 s: " $1; exit 1 } }' >&2
