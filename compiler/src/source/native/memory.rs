//! Loops over memory: copies and fills.

use super::{Run, flags};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Run<'_> {
    /// `count` times `body`, which gets the number of the trip.
    fn repeat(&mut self, count: Value, body: impl FnOnce(&mut Self, Value)) {
        let (head, inside, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let trip = self.b.append_block_param(head, types::I64);
        let zero = self.number(0);
        self.b.ins().jump(head, &[zero.into()]);
        self.b.switch_to_block(head);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, trip, count);
        self.b.ins().brif(more, inside, &[], after, &[]);
        self.b.switch_to_block(inside);
        body(self, trip);
        let next = self.b.ins().iadd_imm_s(trip, 1);
        self.b.ins().jump(head, &[next.into()]);
        self.b.switch_to_block(after);
    }

    /// Copies bytes between places that may overlap, words first where they do not.
    pub(super) fn copy(&mut self, to: Value, from: Value, bytes: Value) {
        let (apart, overlap, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let distance = self.b.ins().isub(to, from);
        // Forward is right unless the target begins within the source.
        let within = self.b.ins().icmp(IntCC::UnsignedLessThan, distance, bytes);
        self.b.ins().brif(within, overlap, &[], apart, &[]);

        self.b.switch_to_block(apart);
        let back = self.b.ins().isub(from, to);
        let near = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, back, 8);
        let (zero, words) = (self.number(0), self.b.ins().ushr_imm_u(bytes, 3));
        let words = self.b.ins().select(near, zero, words);
        self.repeat(words, |run, trip| {
            let offset = run.b.ins().ishl_imm_u(trip, 3);
            let (source, target) = (run.b.ins().iadd(from, offset), run.b.ins().iadd(to, offset));
            let word = run.b.ins().load(types::I64, flags(), source, 0);
            run.b.ins().store(flags(), word, target, 0);
        });
        let copied = self.b.ins().ishl_imm_u(words, 3);
        let rest = self.b.ins().isub(bytes, copied);
        self.repeat(rest, |run, trip| {
            let offset = run.b.ins().iadd(copied, trip);
            run.move_byte(to, from, offset);
        });
        self.b.ins().jump(done, &[]);

        self.b.switch_to_block(overlap);
        self.repeat(bytes, |run, trip| {
            let left = run.b.ins().isub(bytes, trip);
            let offset = run.b.ins().iadd_imm_s(left, -1);
            run.move_byte(to, from, offset);
        });
        self.b.ins().jump(done, &[]);
        self.b.switch_to_block(done);
    }

    fn move_byte(&mut self, to: Value, from: Value, offset: Value) {
        let (source, target) = (self.b.ins().iadd(from, offset), self.b.ins().iadd(to, offset));
        let byte = self.b.ins().load(types::I8, flags(), source, 0);
        self.b.ins().store(flags(), byte, target, 0);
    }

    pub(super) fn fill(&mut self, buf: u32, bits: u64) {
        let view = self.view(buf);
        let size = view.dtype.size();
        let shift = i64::from(size.trailing_zeros());
        let count = self.b.ins().ushr_imm_u(view.bytes, shift);
        self.repeat(count, |run, trip| {
            let offset = run.b.ins().ishl_imm_u(trip, shift);
            let place = run.b.ins().iadd(view.pointer, offset);
            let value = run.number(bits as i64);
            run.store(size, value, place);
        });
    }
}
