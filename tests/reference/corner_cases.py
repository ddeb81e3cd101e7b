"""Cases of corners that the official suite leaves out: strings, scans of old operator sets, sequences without steps."""
import numpy as np
from contrib_cases import F, I64, S, case, floats, one, rng
from onnx import TensorProto, helper


def plain_recurrences():
    """Sequences without steps leave zeros."""
    x, states, lengths = floats(190, 4, 3, 5), floats(191, 2, 3, 6), np.array([4, 0, 2], np.int32)
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        operands = [x, floats(192, 2, gates * 6, 5), floats(193, 2, gates * 6, 6), None, lengths, states, *([states] if gates == 4 else [])]
        outputs = (0, 1, 2) if gates == 4 else (0, 1)
        case(f"{op} with a sequence without steps", op, operands, attributes={"hidden_size": 6, "direction": "bidirectional"}, outputs=outputs, types=(F, F, F), domain="")


def strings():
    words = np.array(["b", "a", "", "b", "ab", "é", "a", "Z", "ba"], object)
    for ordered in (0, 1):
        case(f"different strings, sorted {ordered}", "Unique", [words], attributes={"sorted": ordered}, outputs=(0, 1, 2, 3), types=(S, I64, I64, I64), domain="")
        case(f"different strings of a table, sorted {ordered}", "Unique", [words.reshape(3, 3)], attributes={"sorted": ordered}, outputs=(0, 1, 2, 3), types=(S, I64, I64, I64), domain="")
        rows = np.array([["b", "x"], ["a", "y"], ["b", "x"], ["b", "w"]], object)
        for axis in (0, -1):
            case(f"different rows of strings, sorted {ordered}, axis {axis}", "Unique", [rows if axis == 0 else rows.T], attributes={"sorted": ordered, "axis": axis},
                 outputs=(0, 1, 2, 3), types=(S, I64, I64, I64), domain="")
    g = rng(194)
    plain = np.array([0.1, 1 / 3, 1e22, -0.0, 5e-324, 1.7976931348623157e308, 123456789012345680, np.inf, -np.inf, np.nan, 1e-5, 1e-4, 100, 1e17, 2.5e-100, -7e150])
    # Halfway between numbers of eight digits, as written and as near to it as double precision is, and on both sides of it.
    halves = np.array([float(f"{m}5e{e}") for m, e in zip(g.integers(10**7, 10**8, 600), g.integers(-270, 270, 600))] + [float(f"{m}.5") for m in (12345678, 99999999, 10000001)])
    near = np.concatenate([halves, np.nextafter(halves, 0), np.nextafter(halves, np.inf)])
    some = g.integers(-2**63, 2**63, 400).view(np.float64)
    for name, values in (("plain", plain), ("near halves", near), ("any", some)):
        case(f"double precision as strings, {name}", "Cast", [values], attributes={"to": S}, types=(S,), domain="")
    case("single precision as strings", "Cast", [g.integers(-2**31, 2**31, 400).astype(np.int32).view(np.float32)], attributes={"to": S}, types=(S,), domain="")


def letters():
    """The locale decides in onnxruntime which letters there are: C.UTF-8 has all of Unicode."""
    low = np.array(["äöüß", "ñandú", "привет", "ας", "ǆ", "ﬁ", "ⅷ", "ÿ", "µ", "ᾳ", "ɐ", "𐐨", "a z", "", "日本"], object)
    high = np.array(["ÄÖÜẞ", "ÑANDÚ", "ПРИВЕТ", "ΑΣ", "Ǆ", "ǅ", "Ⅷ", "Ÿ", "K", "ᾼ", "Ⱥ", "𐐀", "A Z", "", "日本"], object)
    for action, words in (("UPPER", low), ("LOWER", high)):
        for sensitive in (0, 1):
            stop = [words[1], words[3].swapcase(), "none"]
            case(f"letters, {action}, stop words as written {sensitive}", "StringNormalizer", [words], types=(S,), domain="",
                 attributes={"case_change_action": action, "is_case_sensitive": sensitive, "stopwords": stop, "locale": "C.UTF-8"})
            case(f"letters, {action}, all words {sensitive}", "StringNormalizer", [words[None]], types=(S,), domain="",
                 attributes={"case_change_action": action, "is_case_sensitive": sensitive, "locale": "C.UTF-8"})
    case("stop words beyond ASCII, letters as they are", "StringNormalizer", [high], types=(S,), domain="", attributes={"stopwords": ["привет", "äöüß"], "locale": "C.UTF-8"})


def sequences_of_strings():
    two, more, place = np.array(["x", "yy"], object), np.array(["zzz", ""], object), one(1, np.int64)
    sequence = helper.make_node("SequenceConstruct", ["in_0", "in_1"], ["s"])
    at = helper.make_node("SequenceAt", ["s", "in_2"], ["out_0"])
    case("a string tensor of a sequence", "SequenceAt", [two, more, place], nodes=[sequence, at], constants=(2,), types=(S,))
    join = helper.make_node("ConcatFromSequence", ["s"], ["out_0"], axis=0, new_axis=1)
    case("string tensors joined", "ConcatFromSequence", [two, more], nodes=[sequence, join], types=(S,))
    added = [helper.make_node("SequenceInsert", ["s", "in_0", "in_2"], ["t"]), helper.make_node("ConcatFromSequence", ["t"], ["out_0"], axis=0)]
    case("a string tensor put into a sequence", "SequenceInsert", [two, more, place], nodes=[sequence, *added], constants=(2,), types=(S,))
    for keep in (0, 1):
        apart = helper.make_node("SplitToSequence", ["in_0"], ["s"], axis=0, keepdims=keep)
        case(f"strings apart, kept axes {keep}", "SplitToSequence", [more, two, place], nodes=[apart, at], constants=(2,), types=(S,), open_sizes=True)
    value = helper.make_tensor_value_info
    list_of = lambda name: helper.make_tensor_sequence_value_info(name, S, None)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("SequenceInsert", ["before", "in_0"], ["after"])], "body",
        [value("trip", I64, []), value("go", TensorProto.BOOL, []), list_of("before")], [value("goes", TensorProto.BOOL, []), list_of("after")])
    loop = [helper.make_node("SequenceEmpty", [], ["none"], dtype=S), helper.make_node("Loop", ["in_1", "", "none"], ["s"], body=body),
            helper.make_node("ConcatFromSequence", ["s"], ["out_0"], axis=0)]
    other = np.array(["a", "bcd", "ef"], object)
    for name, first, second in (("string", two, other), ("float", floats(198, 2), floats(199, 3))):
        kind = S if name == "string" else F
        for number in (0, 1, -1):
            case(f"a {name} tensor of several shapes, place {number}", "SequenceAt", [first, second, one(number, np.int64)], nodes=[sequence, at], types=(kind,))
    branch = lambda name, members: helper.make_graph([helper.make_node("SequenceConstruct", members, [name])], name, [], [list_of(name)])
    choice = [helper.make_node("If", ["in_2"], ["s"], then_branch=branch("t", ["in_0", "in_1"]), else_branch=branch("e", ["in_1"])),
              helper.make_node("ConcatFromSequence", ["s"], ["out_0"], axis=0)]
    for taken in (False, True):
        case(f"sequences of strings of branches, {taken}", "If", [two, other, one(taken, bool)], nodes=choice, types=(S,))
    longer = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("SequenceInsert", ["before", "x"], ["after"]), helper.make_node("StringConcat", ["x", "in_0"], ["y"])],
        "body", [value("trip", I64, []), value("go", TensorProto.BOOL, []), list_of("before"), value("x", S, [2])], [value("goes", TensorProto.BOOL, []), list_of("after"), value("y", S, [2])])
    grow = [helper.make_node("SequenceEmpty", [], ["none"], dtype=S), helper.make_node("Loop", ["in_1", "", "none", "in_0"], ["s", "out_1"], body=longer),
            helper.make_node("ConcatFromSequence", ["s"], ["out_0"], axis=0)]
    case("longer strings in each trip of a loop", "Loop", [two, one(3, np.int64)], nodes=grow, constants=(1,), outputs=(0, 1), types=(S, S))
    twice = helper.make_graph([helper.make_node("StringConcat", ["e", "e"], ["f"])], "body", [value("e", S, [1])], [value("f", S, [1])])
    mapped = [helper.make_node("SplitToSequence", ["in_0"], ["s"], axis=0), helper.make_node("SequenceMap", ["s"], ["m"], body=twice),
              helper.make_node("ConcatFromSequence", ["m"], ["out_0"], axis=0)]
    case("a map over strings", "SequenceMap", [other], nodes=mapped, types=(S,), open_sizes=True)
    case("a sequence of strings that a loop makes", "Loop", [two, one(3, np.int64)], nodes=loop, constants=(1,), types=(S,))


def scans_of_rows():
    """Scans of operator set 8, with a length for each row of the batch."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "x"], ["grown"]), helper.make_node("Mul", ["grown", "y"], ["part"]), helper.make_node("Identity", ["y"], ["as it is"])],
        "body", [value("sum", F, [2]), value("x", F, [2]), value("y", F, [])], [value("grown", F, [2]), value("part", F, [2]), value("as it is", F, [])])
    start, x, y = floats(195, 3, 2), floats(196, 3, 4, 2), floats(197, 3, 4)
    for directions in ([0, 0], [0, 1]):
        node = helper.make_node("Scan", ["in_0", "in_1", "in_2", "in_3"], ["out_0", "out_1", "out_2"], num_scan_inputs=2, directions=directions, body=body)
        for lengths in ([4, 4, 4], [1, 4, 2]):
            case(f"rows of lengths {lengths} scanned, directions {directions}", "Scan", [np.array(lengths, np.int64), start, x, y], nodes=[node], opset=8,
                 constants=(0,), outputs=(0, 1, 2), types=(F, F, F))


plain_recurrences()
strings()
letters()
sequences_of_strings()
scans_of_rows()
