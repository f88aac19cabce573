#!/usr/bin/env bash
# Builds the firmware, runs it in QEMU on every target in every mode, checks that each planted
# fault is caught, and proves by the linker and the disassembler what docs/embedded.md says.
# Installs what it needs; what cannot be had is named in lines that begin with SKIPPED.
set -u
cd "$(dirname "$0")" || exit 1
export CARGO_TERM_COLOR=never DEBIAN_FRONTEND=noninteractive

m3=thumbv7m-none-eabi m0=thumbv6m-none-eabi riscv=riscv32imac-unknown-none-elf
failures=0 rows=()

verdict() { # NAME RC
    local word=ok
    [ "$2" -eq 0 ] || { word=FAILED; failures=$((failures + 1)); }
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

# build TARGET BIN FEATURES: into target/ with no features, else into a folder of its own.
build() {
    cargo build -q --release --target "$1" --bin "$2" --features "$3" \
        --target-dir "target${3:+/$3}"
}

elf() { printf 'target%s/%s/release/%s' "${3:+/$3}" "$1" "$2"; }

# emulate TARGET ELF MODE...
emulate() {
    local target=$1 elf=$2 board
    shift 2
    case $target in
        "$m3") board="qemu-system-arm -M lm3s6965evb -serial none" ;;
        "$m0") board="qemu-system-arm -M microbit -serial none" ;;
        *) board="qemu-system-riscv32 -M virt -smp 2 -m 32M -bios none -serial stdio" ;;
    esac
    [[ $board == *arm* ]] && board+=" -semihosting-config enable=on,target=native"
    # shellcheck disable=SC2086
    timeout 120 $board -nographic -monitor none "$@" -kernel "$elf" </dev/null
}

# run TARGET BIN: the firmware must pass in each mode, its control must fail with a lost update.
# On one core the emulator must look for interrupts after every instruction. Two cores run as two
# threads of the host, truly at once; counting instructions would run them in turns.
run() {
    local target=$1 bin=$2 mode modes out rc
    build "$target" "$bin" "" && build "$target" "$bin" planted-race
    rc=$?
    verdict "$bin builds for $target" $rc
    [ $rc -eq 0 ] || return
    modes=("-icount shift=0" "-icount shift=5 -singlestep")
    [ "$target" = $riscv ] && modes=("" "-singlestep")
    for mode in "${modes[@]}"; do
        # shellcheck disable=SC2086
        out=$(emulate "$target" "$(elf "$target" "$bin" "")" $mode 2>&1)
        rc=$?
        printf '%s\n' "$out" | grep -v '^Timer with period zero'
        [ $rc -eq 0 ] && grep -q ': ok$' <<<"$out"
        verdict "$bin, $target, ${mode:-two threads}" $?
        # shellcheck disable=SC2086
        out=$(emulate "$target" "$(elf "$target" "$bin" planted-race)" $mode 2>&1)
        rc=$?
        [ $rc -ne 0 ] && grep -q 'an update was lost' <<<"$out"
        verdict "  control: planted race, ${mode:-two threads}" $?
    done
}

# Proofs by linker and disassembler.
prove() {
    local target=$1 out listing
    build "$target" bare ""
    verdict "no panic path, no allocator: bare links for $target" $?
    out=$(build "$target" bare planted-panic 2>&1)
    [ $? -ne 0 ] && grep -q 'a_path_leads_to_a_panic' <<<"$out"
    verdict "  control: planted panic does not link" $?
    out=$(build "$target" bare planted-alloc 2>&1)
    [ $? -ne 0 ] && grep -q 'no global memory allocator' <<<"$out"
    verdict "  control: planted allocation does not link" $?

    listing=target/$target-listing
    arm-none-eabi-objdump -d "$(elf "$target" bare "")" >"$listing"
    local op
    for op in op_put op_take_commit op_take_detach op_remove op_revoke_rollback op_watermark; do
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

text() { arm-none-eabi-size "$(elf "$1" bare "$2")" | awk 'NR == 2 { print $1 }'; }

measure() {
    local target=$1
    build "$target" bare small && build "$target" bare empty && build "$target" cost ""
    verdict "cost builds for $target" $?
    printf 'sizes, %s:\n' "$target"
    arm-none-eabi-size "$(elf "$target" bare "")"
    printf 'text of assign + put + take + commit + watermark: %d bytes\n' \
        $(($(text "$target" small) - $(text "$target" empty)))
    printf 'text of these and detach, remove, revoke, rollback: %d bytes\n' \
        $(($(text "$target" "") - $(text "$target" empty)))
    printf 'RAM of RingWindow<[u8; 16], 64>: %d bytes\n' \
        "0x$(arm-none-eabi-nm -S "$(elf "$target" bare "")" | awk '/WINDOW/ { print $2 }')"
    local out rc
    out=$(emulate "$target" "$(elf "$target" cost "")" -icount shift=0 2>&1)
    rc=$?
    printf '%s\n' "$out" | grep -v '^Timer with period zero'
    [ $rc -eq 0 ] && grep -q '^cost: watermark' <<<"$out"
    verdict "cost, $target" $?
}

cargo fmt --check
verdict "format" $?
for target in "${targets[@]}"; do
    bins=(--bin link --bin bare --bin cost)
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
        prove "$target"
        measure "$target"
    fi
done

printf '\nfirmware:\n'
printf '%s\n' "${rows[@]}"
[ "$failures" -eq 0 ]
