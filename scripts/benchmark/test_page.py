"""The page is made from results: `python3 -m unittest discover -s scripts/benchmark -t scripts`."""
import unittest

from . import measure, page


def engine(steady, **more):
    return {"load": 0.0002, "first": steady * 2, "steady": steady, "least": steady, "version": None, **more}


def results():
    models = [
        {"name": "alpha", "onnx_bytes": 4000, "file_bytes": 5000, "arena_bytes": 64, "inputs": [[1, 3]],
         "threads": {"1": {"graphmend": engine(0.002), "onnxruntime": engine(0.004, version="1.2"), "openvino": engine(0.001)}},
         "memory": {"graphmend": 8 << 20, "onnxruntime": 64 << 20, "onnxruntime, native": 32 << 20, "openvino": {"failed": "no"}},
         "cold": {"graphmend": 0.002, "onnxruntime": 0.08},
         "profile": {"ops": 2e6, "classes": [{"class": "convolution", "us_per_run": 900.0, "gflops": 40.0, "gb_per_s": 5.0},
                                             {"class": "data movement", "us_per_run": 100.0, "gflops": None, "gb_per_s": None}]}},
        {"name": "beta", "onnx_bytes": 4000, "file_bytes": 5000, "arena_bytes": 64, "inputs": [[1, 3]],
         "threads": {"1": {"graphmend": engine(0.001), "onnxruntime": engine(0.008), "openvino": {"failed": "cannot | take it"}}},
         "memory": {}, "cold": {"failed": "x"}, "profile": None},
        {"name": "gamma", "onnx_bytes": 1, "inputs": [[1]], "threads": {}, "failed": "operator Foo is not supported"},
    ]
    points = [{"x": x, "ops": x * 1e6, "engines": {"graphmend": engine(x * 1e-3), "onnxruntime": engine(x * 2e-3)}} for x in (1, 4)]
    return {"date": "2026-01-02", "rounds": 3, "seconds": 0.5, "threads": [1], "peers": ["onnxruntime", "openvino"], "quick": False,
            "machine": {"cpu": "Some CPU", "cores": 2, "arch": "x86_64", "system": "Linux 6", "memory_gib": 8},
            "limits": {"gflops": [[128, 50.0], [512, 160.0]], "read": [["L1", 16384, 300.0], ["memory", 1 << 30, 12.0]]},
            "models": models, "growth": [{"title": "Alpha", "axis": "batch", "points": points}]}


class Page(unittest.TestCase):
    def test_ratios_are_to_the_best_peer_and_leave_failures_out(self):
        self.assertEqual(page.ratios(results(), 1), [("alpha", 0.5, "openvino"), ("beta", 8.0, "onnxruntime")])
        self.assertEqual(page.ratios(results(), 1, against="openvino"), [("alpha", 0.5, "openvino")])
        self.assertEqual(page.best_peer({"graphmend": engine(1)}), (None, None))

    def test_text_says_what_the_results_say(self):
        text = page.text(results(), "performance.svg")
        for expected in [
            "geometric mean of **2.00** over 2 models",
            "Faster than every peer: beta (8.00×).",
            "Behind: alpha (0.50×, OpenVINO).",
            "| alpha | 2 | 4 | **1** | 0.50 |",
            "| beta | 1 | **8** | – | 8.00 |",
            "| gamma | – | – | – | – |",
            "Cold start is 40.0 to 40.0 times faster",
            "25 %",
            "1 of 1 models take at most half",
            "| convolution | 90.0 % | 40.0–40.0 | 25–25 % | 5.0–5.0 | alpha |",
            "From 1 to 4 the operations grow by 4.00, our time by 4.00.",
            "onnxruntime 1.2 and OpenVINO",
            "![Best peer's time over ours for each model](performance.svg)",
            "- **OpenVINO**: beta: `cannot / take it`",
            "- **GraphMend**: gamma: `operator Foo is not supported`",
        ]:
            self.assertIn(expected, text)

    def test_times_have_three_digits_at_every_size(self):
        self.assertEqual([page.cell(t) for t in (None, 0.5, 0.01234, 2e-6, 5e-7)], ["–", "500", "12.3", "0.002", "5.0e-04"])

    def test_nothing_measured_gives_a_page_without_claims(self):
        empty = {**results(), "models": [], "growth": []}
        self.assertNotIn("geometric mean of", page.text(empty))


class Reason(unittest.TestCase):
    def test_the_telling_line_of_an_error_is_kept(self):
        text = "Traceback\n  File x\nRuntimeError: Conversion is failed for: Conv-16\n\n"
        self.assertEqual(measure.reason(text, 1), "RuntimeError: Conversion is failed for: Conv-16")
        self.assertEqual(measure.reason("", 139), "exit status 139")


if __name__ == "__main__":
    unittest.main()
