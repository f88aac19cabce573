#!/usr/bin/env bash
# Builds the firmware, runs it in QEMU on every target in every mode, checks that each planted
# fault is caught, and proves by the linker and the disassembler what docs/embedded.md says. Its
# numbers are measured again, and must be within 5 % of those kept there.
# Installs what it needs; what cannot be had is named in lines that begin with SKIPPED.
#
#   bash check.sh           all of that
#   bash check.sh --write   only measures, and writes the numbers into docs/embedded.md
set -u
write=false
case ${1-} in
    "") ;;
    --write) write=true ;;
    *) echo "unknown argument: $1" >&2; exit 2 ;;
esac
cd "$(dirname "$0")" || exit 1
export CARGO_TERM_COLOR=never DEBIAN_FRONTEND=noninteractive

m3=thumbv7m-none-eabi m0=thumbv6m-none-eabi riscv=riscv32imac-unknown-none-elf
rows=() failed=() details=()

# verdict NAME RC [RC_OF_RUN OUTPUT]: the last two are shown at the end if it failed.
verdict() {
    local word=ok
    if [ "$2" -ne 0 ]; then
        word=FAILED
        failed+=("$1")
        details+=("$(printf -- '-- %s: rc %s\n' "$1" "${3-$2}" && tail -n 8 <<<"${4-}")")
    fi
    rows+=("$(printf '%-64s %s' "$1" "$word")")
    printf -- '-- %s: %s\n' "$1" "$word"
}

for program in qemu-system-arm qemu-system-riscv32 arm-none-eabi-objdump; do
    command -v "$program" >/dev/null && continue
    apt-get update -q >/dev/null 2>&1
    apt-get install -y -q --no-install-recommends \
        qemu-system-arm qemu-system-misc binutils-arm-none-eabi >/dev/null 2>&1
    break
done
if ! command -v qemu-system-arm >/dev/null || ! command -v arm-none-eabi-objdump >/dev/null; then
    echo "SKIPPED all firmware: QEMU or the Arm binutils do not install"
    exit 0
fi

has_target() {
    rustup target list --installed | grep -qx "$1" ||
        timeout 120 rustup target add "$1" >/dev/null 2>&1
}
targets=()
for target in $m3 $m0 $riscv; do
    if has_target "$target"; then
        targets+=("$target")
    else
        echo "SKIPPED firmware for $target: rustup cannot add the target"
    fi
done

# build TARGET BIN FEATURES [OPT]: into a folder of its own for the features and the level.
build() {
    CARGO_PROFILE_RELEASE_OPT_LEVEL=${4:-s} cargo build -q --release --target "$1" --bin "$2" \
        --features "$3" --target-dir "$(folder "$3" "${4:-s}")"
}

folder() {
    local name=${1//,/-}
    [ "$2" = s ] || name+=${name:+-}$2
    printf 'target%s' "${name:+/$name}"
}

# elf TARGET BIN FEATURES [OPT]
elf() { printf '%s/%s/release/%s' "$(folder "$3" "${4:-s}")" "$1" "$2"; }

# board TARGET: the emulator of a board with that core.
board() {
    local arm="-serial none -semihosting-config enable=on,target=native" board
    case $1 in
        "$m3") board="qemu-system-arm -M lm3s6965evb $arm" ;;
        "$m0") board="qemu-system-arm -M microbit $arm" ;;
        *) board="qemu-system-riscv32 -M virt -smp 2 -m 32M -bios none -serial stdio" ;;
    esac
    printf '%s -nographic -monitor none' "$board"
}

# emulate TARGET ELF MODE...: the limit ends what hangs, on a host ten times slower too.
emulate() {
    local target=$1 elf=$2
    shift 2
    # shellcheck disable=SC2046
    timeout 400 $(board "$target") "$@" -kernel "$elf" </dev/null
}

# caught NAME WORDS TARGET ELF MODE...: the firmware must fail, and say so by these words.
caught() {
    local name=$1 words=$2 out rc
    shift 2
    out=$(emulate "$@" 2>&1)
    rc=$?
    [ $rc -ne 0 ] && grep -q "$words" <<<"$out"
    verdict "  control: $name" $? $rc "$out"
}

# run TARGET BIN [FEATURES]: the firmware must pass in each mode, its controls must fail. No verdict
# may depend on how the host runs the emulator. On one core time is instructions counted, and asleep
# it goes to the next timer at once (`sleep=off`); the emulator must look for interrupts after every
# instruction. Two cores run as two threads of the host, at once if it has two free; counting
# instructions would run them in turns. Their control loses an update either way.
run() {
    local target=$1 bin=$2 features=${3-} mode modes out rc
    local race=${3:+$3,}planted-race sleep=${3:+$3,}planted-sleep
    build "$target" "$bin" "$features" && build "$target" "$bin" "$race" &&
        { [ "$bin" != tasks ] || build "$target" "$bin" "$sleep"; }
    rc=$?
    verdict "$bin builds for $target" $rc
    [ $rc -eq 0 ] || return
    modes=("-icount shift=0,sleep=off" "-icount shift=5,sleep=off -singlestep")
    [ "$target" = $riscv ] && modes=("" "-singlestep")
    for mode in "${modes[@]}"; do
        # shellcheck disable=SC2086
        out=$(emulate "$target" "$(elf "$target" "$bin" "$features")" $mode 2>&1)
        rc=$?
        printf '%s\n' "$out" | grep -v '^Timer with period zero'
        [ $rc -eq 0 ] && grep -q ': ok$' <<<"$out"
        verdict "$bin, $target, ${mode:-two threads}" $? $rc "$out"
        # shellcheck disable=SC2086
        caught "planted race, ${mode:-two threads}" 'an update was lost' \
            "$target" "$(elf "$target" "$bin" "$race")" $mode
        [ "$bin" = tasks ] || continue
        # shellcheck disable=SC2086
        caught "planted sleep over a wake-up, $mode" 'a wake-up was slept over' \
            "$target" "$(elf "$target" "$bin" "$sleep")" $mode
    done
}

# Proofs by linker and disassembler.
prove() {
    local target=$1 out rc listing
    build "$target" bare ""
    verdict "no panic path, no allocator: bare links for $target" $?
    build "$target" bare every
    verdict "the same of every other call for $target" $?
    out=$(build "$target" bare planted-panic 2>&1)
    rc=$?
    [ $rc -ne 0 ] && grep -q 'a_path_leads_to_a_panic' <<<"$out"
    verdict "  control: planted panic does not link" $? $rc "$out"
    out=$(build "$target" bare planted-alloc 2>&1)
    rc=$?
    [ $rc -ne 0 ] && grep -q 'no global memory allocator' <<<"$out"
    verdict "  control: planted allocation does not link" $? $rc "$out"

    listing=target/$target-listing
    arm-none-eabi-objdump -d "$(elf "$target" bare every)" >"$listing"
    local op
    for op in op_put op_take_commit op_take_detach op_remove op_revoke_rollback op_watermark \
        op_take_async; do
        grep -q "<$op>:" "$listing" || verdict "$op is in the listing" 1
    done
    ! grep -qE 'ldrexd|strexd|__atomic_|__sync_|__aeabi_(u?ldivmod|u?idivmod)' "$listing"
    verdict "no 64-bit atomic, no library atomic, no division in $target" $?
    if [ "$target" = $m3 ]; then
        grep -q ldrex "$listing" && ! grep -qE 'cpsi[de]' "$listing"
        verdict "nothing turns interrupts off in $target" $?
    else
        # The same look must find them where they are: on the chip without compare-exchange.
        grep -q 'cpsid' "$listing"
        verdict "  control: interrupts are off in places in $target" $?
    fi
}

# ---------------------------------------------------------------- the numbers

declare -A cell
labels=()

# note LABEL COLUMN VALUE: into the tables, below what is there.
note() {
    [[ " ${labels[*]/#/|} " == *"|$1 "* ]] || labels+=("$1")
    cell[$1/$2]=$(sed -E ':a; s/^([0-9]+)([0-9]{3})/\1,\2/; ta' <<<"$3")
}

text() { arm-none-eabi-size "$(elf "$@")" | awk 'NR == 2 { print $1 }'; }
data() { arm-none-eabi-size "$(elf "$@")" | awk 'NR == 2 { print $2 }'; }

# Bytes of the compiler's library in a program, mostly `memcpy`.
library() {
    arm-none-eabi-nm -S -C -t d "$(elf "$@")" |
        awk '/ [tTwW] (__aeabi_|compiler_builtins::)/ { sum += $2 } END { print sum + 0 }'
}

# window TARGET FEATURES: bytes of the window, if all of them are zeros that need no image.
window() {
    local size
    size=$(arm-none-eabi-nm -S "$(elf "$1" bare "$2")" | awk '/ [bB] .*WINDOW/ { print $2 }')
    printf '%d' "0x${size:?the window is not among the zeros}"
}

measure() {
    local target=$1 opt features column line out rc levels=(s z)
    # At `z` the compiler keeps checks of `portable-atomic` that lead to a panic: `bare` does not link.
    [ "$target" = $m0 ] && levels=(s)
    for opt in "${levels[@]}"; do
        column=$target/$opt
        for features in empty small "" small,tasks; do
            build "$target" bare "$features" $opt || rc=1
        done
        build "$target" cost "" $opt && [ -z "${rc-}" ]
        rc=$?
        verdict "bare and cost build for $column" $rc
        [ $rc -eq 0 ] || return
        local none some
        none=$(text "$target" bare empty $opt) some=$(text "$target" bare small $opt)
        note 'text of assign, put, take, commit, rollback on drop, watermark' $column \
            $((some - none))
        note 'of that, the library (`memcpy`, shifts)' $column \
            $(($(library "$target" bare small $opt) - $(library "$target" bare empty $opt)))
        note 'text of these and detach, remove, revoke, rollback' $column \
            $(($(text "$target" bare "" $opt) - none))
        note 'text that `take_async` adds to the first row' $column \
            $(($(text "$target" bare small,tasks $opt) - some))
        note 'RAM of the window (`.bss`; 1,024 of it are messages)' $column "$(window "$target" "")"
        note 'RAM of the window with feature `async`' $column \
            "$(window "$target" small,tasks)"
        note 'first contents of the window in flash (`.data`)' $column \
            $(($(data "$target" bare "" $opt) - $(data "$target" bare empty $opt)))
        out=$(emulate "$target" "$(elf "$target" cost "" $opt)" -icount shift=0,sleep=off 2>&1)
        rc=$?
        [ $rc -eq 0 ] && grep -q '^cost: watermark' <<<"$out"
        verdict "cost, $column" $? $rc "$out"
        while IFS='|' read -r line instructions sections; do
            note "$line" $column "$instructions"
            note "$line" $target/sections "$sections"
        done < <(sed -nE 's/^cost: (.*[^ ]) +([0-9]+) instructions +([0-9.]+) sections$/\1|\2|\3/p' <<<"$out")
        rc=
    done
}

# The tables of docs/embedded.md.
tables() {
    local label cells column part=sizes
    printf '%s\n\n' "$(rustc --version | cut -d' ' -f1,2):"
    printf '| bytes | thumbv7m, `s` | `z` | thumbv6m, `s` |\n|---|--:|--:|--:|\n'
    for label in "${labels[@]}"; do
        if [ $part = sizes ] && [[ $label == put* ]]; then
            part=calls
            printf '\n| instructions | thumbv7m, `s` | `z` | thumbv6m, `s` | sections |\n'
            printf '|---|--:|--:|--:|--:|\n'
        fi
        cells=
        for column in $m3/s $m3/z $m0/s $m0/sections; do
            [[ $part/$column == sizes/*/sections ]] || cells+=" ${cell[$label/$column]-} |"
        done
        printf '| %s |%s\n' "$label" "$cells"
    done
}

# compare KEPT NEW: the same rows, and each number within 5 %.
compare() {
    awk -F'|' '
        function number(text) { gsub(/[, ]/, "", text); return text }
        !/^\|/ || /^\|--/ { next }
        NR == FNR { kept[$2] = $0; rows++; next }
        !($2 in kept) { print "not kept:" $2; bad = 1; next }
        {
            rows--
            n = split(kept[$2], old, "|")
            for (i = 3; i < n; i++) {
                was = number(old[i]); is = number($i)
                if (was !~ /^[0-9.]+$/ || is !~ /^[0-9.]+$/) {
                    if (was == is) continue
                } else if (is - was <= 0.05 * was && was - is <= 0.05 * was) continue
                print "drifted:" $2 "was " was ", is " is; bad = 1
            }
        }
        END { if (rows > 0) { print rows " rows are gone"; bad = 1 } exit bad }
    ' "$1" "$2"
}

numbers() {
    local rc drift docs=../docs/embedded.md new=target/numbers.md kept=target/numbers-kept.md
    tables >$new
    printf '\n'
    cat $new
    printf '\n'
    if $write; then
        awk -v new=$new '
            /^<!-- end of what check.sh writes -->/ { skip = 0 }
            !skip { print }
            /^<!-- check.sh writes this -->/ { skip = 1; while ((getline line < new) > 0) print line }
        ' $docs >target/embedded.md && cp target/embedded.md $docs
    fi
    sed -n '/^<!-- check.sh writes this -->/,/^<!-- end of what/p' $docs >$kept
    if grep -qF "$(head -n 1 $new)" $kept; then
        drift=$(compare $kept $new)
        rc=$?
        verdict "the numbers are those of docs/embedded.md, within 5 %" $rc $rc "$drift"
    else
        echo "SKIPPED the numbers of docs/embedded.md: they are another compiler's"
    fi
}

cargo fmt --check
verdict "format" $?
for target in "${targets[@]}"; do
    if $write; then
        [ "$target" = $riscv ] || measure "$target"
        continue
    fi
    bins=(--features tasks --bin link --bin tasks --bin far --bin bare --bin cost)
    [ "$target" = $riscv ] && bins=(--bin two_cores)
    cargo clippy -q --target "$target" --lib "${bins[@]}" -- -D warnings
    verdict "clippy for $target" $?
    if [ "$target" = $riscv ]; then
        if command -v qemu-system-riscv32 >/dev/null; then
            run "$target" two_cores
        else
            echo "SKIPPED two cores: qemu-system-riscv32 does not install"
        fi
    else
        run "$target" link
        run "$target" far
        run "$target" tasks tasks
        prove "$target"
        measure "$target"
    fi
done

if [[ " ${targets[*]} " == *" $m3 "* && " ${targets[*]} " == *" $m0 "* ]]; then
    numbers
else
    echo "SKIPPED the numbers of docs/embedded.md: a target is missing"
fi

printf '\nfirmware:\n'
printf '%s\n' "${rows[@]}"
# Last, because of a long log often only the end is kept.
if [ ${#failed[@]} -gt 0 ]; then
    printf '\nwhat failed:\n'
    printf '%s\n' "${details[@]}"
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
