//! A depthwise convolution and the 1×1 convolution that alone reads it become one unit.
//!
//! Both go through the image line by line. What the first makes of some lines stays in the cache until the second has read it:
//! nothing of it goes to memory, and with several threads each reads what it made itself.

use super::{Chain, Fused, Step, Unit, uses};
use crate::lower::contract;
use crate::te::{Program, TensorId};
use std::collections::BTreeMap;

/// Makes the chains that are `worth` it.
pub fn find(fused: &mut Fused, worth: &dyn Fn(&Program, &Chain) -> bool) {
    let uses = uses::find(&fused.program);
    let p = &fused.program;
    let private = |t: TensorId, sum: TensorId| {
        !uses.whole.contains(&t)
            && p.memory(t) == t
            && uses.readers.get(&t).is_some_and(|readers| readers.iter().eq([&sum]))
    };
    in_block(p, &mut fused.steps, &|chain| private(chain.first.out, chain.second.sum) && worth(p, chain));
}

fn in_block(p: &Program, steps: &mut Vec<Step>, worth: &dyn Fn(&Chain) -> bool) {
    // Where the contractions of this block are by what they store; of a chain nothing is taken into another one.
    let mut made: BTreeMap<TensorId, usize> = BTreeMap::new();
    let mut taken = vec![];
    for k in 0..steps.len() {
        match &mut steps[k] {
            Step::If { then, other, .. } => {
                in_block(p, then, worth);
                in_block(p, other, worth);
            }
            Step::Loop(_, body) => in_block(p, body, worth),
            Step::Run(Unit::Contract(_)) => {
                let Step::Run(Unit::Contract(second)) = &steps[k] else { continue };
                let second = second.clone();
                let factors = contract::recognise(p, second.sum).map(|c| [c.lhs.0, c.rhs.0]);
                let found = factors.into_iter().flatten().find_map(|t| {
                    let at = *made.get(&t)?;
                    let Step::Run(Unit::Contract(first)) = &steps[at] else { return None };
                    let chain = Chain { first: first.clone(), second: second.clone() };
                    worth(&chain).then_some((at, chain))
                });
                match found {
                    Some((at, chain)) => {
                        made.remove(&chain.first.out);
                        taken.push(at);
                        steps[k] = Step::Run(Unit::Chain(Box::new(chain)));
                    }
                    None => {
                        made.insert(second.out, k);
                    }
                }
            }
            Step::Run(_) | Step::Check(_) => {}
        }
    }
    let mut k = 0;
    steps.retain(|_| {
        k += 1;
        !taken.contains(&(k - 1))
    });
}
