//! Orders of axes: how they pass through views and through the loads of a definition.

use crate::sym::{Int, VarId, free_vars};

/// The axes of a tensor as they lie in memory, outermost first.
pub(super) type Order = Vec<usize>;

fn is_unit(d: Int) -> bool {
    d == Int::new(1)
}

/// Axes in their own order.
pub(super) fn plain(rank: usize) -> Order {
    (0..rank).collect()
}

/// Axes with more than one element, or not known to have one.
fn wide(shape: &[Int]) -> Vec<usize> {
    (0..shape.len()).filter(|k| !is_unit(shape[*k])).collect()
}

/// Whether elements lie elsewhere than in the axes' own order.
pub(super) fn moves(order: &[usize], shape: &[Int]) -> bool {
    !order.iter().filter(|k| !is_unit(shape[**k])).is_sorted()
}

/// An order of all axes from one of those with more than one element; the axes' own order where it does not matter.
fn complete(order: &[usize], shape: &[Int]) -> Order {
    if !moves(order, shape) {
        return plain(shape.len());
    }
    (0..shape.len()).filter(|k| is_unit(shape[*k])).chain(order.iter().copied()).collect()
}

/// The axes named in `last` moved behind the others.
pub(super) fn with_last(shape: &[Int], last: &dyn Fn(usize) -> bool) -> Order {
    let axes = wide(shape);
    let (back, front): (Order, Order) = axes.into_iter().partition(|k| last(*k));
    complete(&[front, back].concat(), shape)
}

/// Axes of two shapes of the same elements that make up the same part of a position.
fn segments(a: &[Int], b: &[Int]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let (left, right) = (wide(a), wide(b));
    let same = left.iter().rev().zip(right.iter().rev()).take_while(|(x, y)| a[**x] == b[**y]).count();
    let (left, tail_left) = left.split_at(left.len() - same);
    let (right, tail_right) = right.split_at(right.len() - same);
    let mut out = vec![];
    let (mut i, mut j) = (0, 0);
    while i < left.len() && j < right.len() {
        let (from_i, from_j) = (i, j);
        let (mut x, mut y) = (a[left[i]], b[right[j]]);
        (i, j) = (i + 1, j + 1);
        while x.eq_proof(y) != Some(true) {
            match x.le(y) {
                Some(true) if i < left.len() => {
                    x = x * a[left[i]];
                    i += 1;
                }
                Some(false) if j < right.len() => {
                    y = y * b[right[j]];
                    j += 1;
                }
                // What cannot be told apart stays together.
                _ => {
                    (i, j) = (left.len(), right.len());
                    break;
                }
            }
        }
        out.push((left[from_i..i].to_vec(), right[from_j..j].to_vec()));
    }
    if i < left.len() || j < right.len() {
        out.push((left[i..].to_vec(), right[j..].to_vec()));
    }
    out.extend(tail_left.iter().zip(tail_right).map(|(x, y)| (vec![*x], vec![*y])));
    out
}

/// The order of shape `to` in which the elements lie as those of shape `from` do in `order`; nothing if there is none.
pub(super) fn through(order: &[usize], from: &[Int], to: &[Int]) -> Option<Order> {
    if !moves(order, from) {
        return Some(plain(to.len()));
    }
    let parts = segments(from, to);
    let mut left: Vec<usize> = order.iter().copied().filter(|k| !is_unit(from[*k])).collect();
    let mut out = vec![];
    while let Some(first) = left.first() {
        let (own, other) = parts.iter().find(|(own, _)| own.first() == Some(first))?;
        if !left.starts_with(own) {
            return None;
        }
        left.drain(..own.len());
        out.extend(other);
    }
    Some(complete(&out, to))
}

/// `order` changed so that it passes through a view of shape `to`: axes that the view joins lie together, where the last of
/// them lay.
pub(super) fn regroup(order: &[usize], from: &[Int], to: &[Int]) -> Order {
    let at = |k: &usize| order.iter().position(|x| x == k);
    let mut parts: Vec<Vec<usize>> = segments(from, to).into_iter().map(|(own, _)| own).collect();
    parts.sort_by_key(|own| own.iter().map(at).max());
    complete(&parts.concat(), from)
}

/// The one of `vars` that `i` depends on.
fn link(i: Int, vars: &[VarId]) -> Option<usize> {
    let used = free_vars(i);
    let mut found = (0..vars.len()).filter(|k| used.contains(&vars[*k]));
    found.next().filter(|_| found.next().is_none())
}

/// The order of a reader with index `vars` and `shape` that goes through a tensor, which lies in `order` and is read at
/// `index`, as it lies; nothing if the reader has further axes.
pub(super) fn of_reader(order: &[usize], index: &[Int], vars: &[VarId], shape: &[Int]) -> Option<Order> {
    let mut out: Order = vec![];
    for k in order {
        if let Some(axis) = link(index[*k], vars)
            && !is_unit(shape[axis])
            && !out.contains(&axis)
        {
            out.push(axis);
        }
    }
    (out.len() == wide(shape).len()).then(|| complete(&out, shape))
}

/// The order of a tensor of `shape`, read at `index` by a definition over `vars` that lies in `order`.
pub(super) fn of_operand(order: &[usize], index: &[Int], vars: &[VarId], shape: &[Int]) -> Order {
    let axes = wide(shape);
    let links: Vec<Option<usize>> = index.iter().map(|i| link(*i, vars)).collect();
    let mut out: Order = vec![];
    for axis in order {
        out.extend(axes.iter().filter(|k| links[**k] == Some(*axis)));
    }
    // Axes of which the reader knows nothing stay behind their neighbours.
    for (n, k) in axes.iter().enumerate() {
        if !out.contains(k) {
            let before = n.checked_sub(1).and_then(|n| out.iter().position(|x| *x == axes[n]));
            out.insert(before.map_or(0, |at| at + 1), *k);
        }
    }
    complete(&out, shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::te::cx::{index_of, index_vars};

    fn dims(d: &[i64]) -> Vec<Int> {
        d.iter().map(|v| Int::new(*v)).collect()
    }

    #[test]
    fn channels_last_passes_through_views_that_split_or_join_channels() {
        let flat = dims(&[2, 12, 5, 7]);
        let order = with_last(&flat, &|k| k == 1);
        assert_eq!(order, [0, 2, 3, 1]);
        let split = dims(&[2, 3, 4, 5, 7]);
        assert_eq!(through(&order, &flat, &split), Some(vec![0, 3, 4, 1, 2]));
        assert_eq!(through(&[0, 3, 4, 1, 2], &split, &flat), Some(order.clone()));
        // Spatial axes joined, and axes of size 1.
        assert_eq!(through(&order, &flat, &dims(&[2, 12, 35])), Some(vec![0, 2, 1]));
        assert_eq!(through(&order, &flat, &dims(&[2, 1, 12, 5, 7])), Some(vec![1, 0, 3, 4, 2]));
        // Channels joined with what now lies elsewhere.
        assert_eq!(through(&order, &flat, &dims(&[2, 420])), None);
    }

    #[test]
    fn axes_of_size_one_do_not_move_anything() {
        let pooled = dims(&[2, 12, 1, 1]);
        assert!(!moves(&[0, 2, 3, 1], &pooled));
        assert_eq!(through(&[0, 2, 3, 1], &pooled, &dims(&[2, 12])), Some(vec![0, 1]));
    }

    #[test]
    fn sizes_that_are_not_known_pass_where_they_stand_alone() {
        let (n, w) = (Int::symbol("n", Some(1), None), Int::symbol("w", Some(1), None));
        let flat = [n, Int::new(12), Int::new(5), w];
        let split = [n, Int::new(3), Int::new(4), Int::new(5), w];
        assert_eq!(through(&[0, 2, 3, 1], &flat, &split), Some(vec![0, 3, 4, 1, 2]));
        assert_eq!(through(&[0, 2, 3, 1], &flat, &[n, Int::new(12), w * 5]), Some(vec![0, 2, 1]));
    }

    #[test]
    fn an_order_is_changed_so_that_joined_axes_lie_together() {
        // What a depth-to-space reads: [n, c, h, b, w, b] as [n, c, h*b, w*b].
        let shape = dims(&[2, 3, 5, 4, 7, 4]);
        let joined = dims(&[2, 3, 20, 28]);
        let order = regroup(&[0, 2, 4, 3, 5, 1], &shape, &joined);
        assert_eq!(order, [0, 2, 3, 4, 5, 1]);
        assert_eq!(through(&order, &shape, &joined), Some(vec![0, 2, 3, 1]));
    }

    #[test]
    fn orders_follow_loads_in_both_directions() {
        let shape = dims(&[2, 12, 5, 7]);
        let vars = index_vars("i", &shape);
        let i = index_of(&vars);
        // A window over rows and columns, channels reversed.
        let r = Int::index("r", Int::new(3));
        let index = [i[0], -i[1] + 11, i[2] * 2 + r, i[3] + r];
        assert_eq!(of_reader(&[0, 2, 3, 1], &index, &vars, &shape), Some(vec![0, 2, 3, 1]));
        assert_eq!(of_operand(&[0, 2, 3, 1], &index, &vars, &dims(&[2, 12, 11, 9])), [0, 2, 3, 1]);
        // A vector of channels says nothing of the other axes.
        assert_eq!(of_reader(&[0], &[i[1]], &vars, &shape), None);
        // A transpose to the order in which elements lie anyway.
        let turned = dims(&[2, 5, 7, 12]);
        let vars = index_vars("i", &turned);
        let i = index_of(&vars);
        assert_eq!(of_reader(&[0, 2, 3, 1], &[i[0], i[3], i[1], i[2]], &vars, &turned), Some(vec![0, 1, 2, 3]));
    }
}
