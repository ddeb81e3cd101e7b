//! Whether loops keep to registers.

use std::collections::HashMap;
use std::ops::Range;

/// Accesses to spilled values inside innermost loops, from the text of a function.
///
/// A schedule whose tile does not fit the registers shows here: each access is a load or store that its arithmetic did not
/// ask for.
pub(super) fn in_innermost_loops(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let labels: HashMap<&str, usize> = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((line.strip_prefix("block")?.strip_suffix(':')?, at)))
        .collect();
    let mut loops: Vec<Range<usize>> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for target in jump_targets(line) {
            match labels.get(target) {
                Some(start) if *start <= at => loops.push(*start..at + 1),
                _ => {}
            }
        }
    }
    let inside = |outer: &Range<usize>, inner: &Range<usize>| {
        outer != inner && outer.start <= inner.start && inner.end <= outer.end && outer.len() > inner.len()
    };
    let innermost = loops.iter().filter(|outer| !loops.iter().any(|inner| inside(outer, inner)));
    let mut spilled: Vec<usize> =
        innermost.flat_map(|range| range.clone()).filter(|at| is_stack_access(lines[*at])).collect();
    spilled.sort_unstable();
    spilled.dedup();
    spilled.len()
}

/// Numbers of the blocks that a line may jump to: every `label5` in it.
fn jump_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("label").skip(1).map(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        &rest[..digits]
    })
}

/// A load or store of a stack slot, as each instruction set's text writes it.
fn is_stack_access(line: &str) -> bool {
    line.contains("(%rsp)") || line.contains("[sp") || line.contains("(slot)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_innermost_loop_counts() {
        let text = "block0:\n  movq 8(%rsp), %rax\nblock1:\n  movq 8(%rsp), %rax\nblock2:\n  addq 8(%rsp), %rax\n  \
                    jl label2; j label3\nblock3:\n  jmp label1\nblock4:\n  retq";
        assert_eq!(in_innermost_loops(text), 1);
    }

    #[test]
    fn a_branch_through_an_edge_block_closes_a_loop() {
        let text = "block1:\n  ldr q0, [sp, #16]\n  b.lt label2 ; b label3\nblock2:\n  str q0, [sp]\n  b label1\nblock3:\n  ret";
        assert_eq!(in_innermost_loops(text), 2);
    }
}
