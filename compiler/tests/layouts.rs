//! Networks packed with all tensors in the order of their axes, and in the orders that contractions ask for: both give the
//! same, with no more layout changes than named.

mod net;

use graphmend_compiler::graph::{Attr, ValueId};
use graphmend_compiler::layout::Layout;
use graphmend_compiler::pack::{Options, pack};
use graphmend_runtime::{Model, Trust};
use net::{Net, run};

/// Numbers between -1 and 1 that are exact in binary.
fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|k| ((k * 37 + seed * 11) % 17) as f32 / 8.0 - 1.0).collect()
}

fn conv(n: &mut Net, x: ValueId, [outputs, inputs, size]: [usize; 3], group: i64, stride: i64) -> ValueId {
    let count = outputs * inputs * size * size;
    let scaled: Vec<f32> = values(count, outputs).iter().map(|v| v / 4.0).collect();
    let (w, b) = (n.constant(&[outputs, inputs, size, size], &scaled), n.constant(&[outputs], &values(outputs, 3)));
    let pad = size as i64 / 2;
    let attrs =
        [("group", Attr::Int(group)), ("strides", Attr::Ints(vec![stride; 2])), ("pads", Attr::Ints(vec![pad; 4]))];
    let y = n.node("Conv", &[x, w, b], &attrs);
    n.node("Relu", &[y], &[])
}

/// Runs with both layouts on an image of 3 channels, 12 by 12, with fixed and with open sizes, and compares.
fn same(changes: usize, build: impl Fn(&mut Net, ValueId) -> ValueId) {
    let image = values(3 * 144, 0);
    for dims in [["1", "3", "12", "12"], ["n", "3", "h", "w"]] {
        let mut results = vec![];
        for layout in [Layout::Keep, Layout::ChannelsLast] {
            let mut n = Net::new();
            let x = n.input("x", &dims);
            let y = build(&mut n, x);
            n.output(y);
            let cpu = graphmend_targets::native().expect("a known processor");
            let options = Options { layout, ..Options::new(cpu) };
            let packed = pack(n.module, [7; 32], &options, &mut |_, _, _| {}).expect("packs");
            // Where an open size meets a number that the model names, a view may need a copy.
            if layout == Layout::ChannelsLast && dims[3] != "w" {
                assert_eq!(packed.summary.layout_changes, changes);
            }
            let model = Model::from_bytes(&packed.bytes, Trust::Unsigned).expect("opens");
            results.push(run(&model, &[(&[1, 3, 12, 12], &image)]));
        }
        let (kept, moved) = (&results[0][0], &results[1][0]);
        assert_eq!(kept.0, moved.0);
        for (k, (a, b)) in kept.1.iter().zip(&moved.1).enumerate() {
            assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "element {k}: {a} and {b}");
        }
    }
}

#[test]
fn residual_blocks_with_depthwise_convolutions_and_a_classifier() {
    same(0, |n, x| {
        let a = conv(n, x, [16, 3, 3], 1, 2);
        let b = conv(n, a, [32, 16, 1], 1, 1);
        let b = conv(n, b, [32, 1, 3], 32, 1);
        let b = conv(n, b, [16, 32, 1], 1, 1);
        let c = n.node("Add", &[a, b], &[]);
        let c = n.node("GlobalAveragePool", &[c], &[]);
        let c = n.node("Flatten", &[c], &[]);
        let w = n.constant(&[16, 10], &values(160, 1));
        n.node("MatMul", &[c, w], &[])
    });
}

#[test]
fn channels_are_weighted_split_joined_and_shuffled() {
    same(0, |n, x| {
        let a = conv(n, x, [24, 3, 3], 1, 1);
        let s = n.node("GlobalAveragePool", &[a], &[]);
        let s = conv(n, s, [24, 24, 1], 1, 1);
        let s = n.node("Sigmoid", &[s], &[]);
        let a = n.node("Mul", &[a, s], &[]);
        let sizes = n.ints(&[8, 16]);
        let parts = n.node_with("Split", &[Some(a), Some(sizes)], &[("axis", Attr::Int(1))], 2);
        let b = conv(n, parts[0], [16, 8, 3], 1, 1);
        let c = n.node("Concat", &[parts[1], b], &[("axis", Attr::Int(1))]);
        let split = n.ints(&[0, 4, 8, 12, 12]);
        let c = n.node("Reshape", &[c, split], &[]);
        let c = n.node("Transpose", &[c], &[("perm", Attr::Ints(vec![0, 2, 1, 3, 4]))]);
        let joined = n.ints(&[0, 32, 12, 12]);
        let c = n.node("Reshape", &[c, joined], &[]);
        conv(n, c, [16, 8, 3], 4, 1)
    });
}

#[test]
fn images_are_made_smaller_and_larger() {
    // The last operator gives the model's output, in the order of its axes.
    same(1, |n, x| {
        let a = conv(n, x, [16, 3, 3], 1, 1);
        let window = [("kernel_shape", Attr::Ints(vec![2, 2])), ("strides", Attr::Ints(vec![2, 2]))];
        let b = n.node("MaxPool", &[a], &window);
        let b = conv(n, b, [16, 16, 3], 1, 1);
        let w = n.constant(&[16, 8, 2, 2], &values(512, 5));
        let up = n.node("ConvTranspose", &[b, w], &[("strides", Attr::Ints(vec![2, 2]))]);
        let c = n.node("Concat", &[a, up], &[("axis", Attr::Int(1))]);
        let c = n.node("SpaceToDepth", &[c], &[("blocksize", Attr::Int(2))]);
        let c = conv(n, c, [64, 96, 1], 1, 1);
        let c = n.node("DepthToSpace", &[c], &[("blocksize", Attr::Int(2))]);
        let c = conv(n, c, [16, 16, 3], 1, 1);
        n.node("Softmax", &[c], &[("axis", Attr::Int(1))])
    });
}

#[test]
fn an_image_that_is_flattened_is_copied_once() {
    same(1, |n, x| {
        let a = conv(n, x, [16, 3, 3], 1, 1);
        let window = [("kernel_shape", Attr::Ints(vec![2, 2])), ("strides", Attr::Ints(vec![2, 2]))];
        let a = n.node("MaxPool", &[a], &window);
        let size = n.ints(&[-1, 16 * 36]);
        let flat = n.node("Reshape", &[a, size], &[]);
        let w = n.constant(&[16 * 36, 10], &values(16 * 360, 2));
        n.node("MatMul", &[flat, w], &[])
    });
}

#[test]
fn tokens_are_made_of_patches_and_back() {
    same(0, |n, x| {
        let a = conv(n, x, [16, 3, 3], 1, 2);
        let list = n.ints(&[0, 16, 36]);
        let a = n.node("Reshape", &[a, list], &[]);
        let a = n.node("Transpose", &[a], &[("perm", Attr::Ints(vec![0, 2, 1]))]);
        let w = n.constant(&[16, 16], &values(256, 4));
        let a = n.node("MatMul", &[a, w], &[]);
        let a = n.node("Softmax", &[a], &[("axis", Attr::Int(-1))]);
        let a = n.node("Transpose", &[a], &[("perm", Attr::Ints(vec![0, 2, 1]))]);
        let image = n.ints(&[0, 16, 6, 6]);
        let a = n.node("Reshape", &[a, image], &[]);
        conv(n, a, [8, 16, 3], 1, 1)
    });
}
