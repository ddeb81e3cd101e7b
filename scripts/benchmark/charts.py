"""The charts of the page, as SVG."""
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import matplotlib.ticker

from . import page

# Same results, same bytes.
matplotlib.rcParams["svg.hashsalt"] = "graphmend"
matplotlib.rcParams["font.size"] = 9
COLOURS = {"graphmend": "#1b5e8c", "onnxruntime": "#c8553d", "openvino": "#7a9e4b", "iree": "#8a6fb0", "rten": "#d9a441", "tract": "#5aa6a6",
           "torch.compile": "#888888"}
PLAIN = matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}")


def save(fig, path):
    fig.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(fig)
    return True


def ratios(results, path):
    """For each model, each engine's time over ours; one panel for each number of threads."""
    panels = [n for n in results["threads"] if page.ratios(results, n)]
    if not panels:
        return False
    peers = results["peers"]
    names = [m["name"] for m in results["models"]]
    fig, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 0.42 * len(names) + 1.6), squeeze=False, sharey=True)
    for ax, threads in zip(axes[0], panels):
        for p in peers:
            found = {m: r for m, r, _ in page.ratios(results, threads, against=p)}
            ys = [k for k, m in enumerate(names) if m in found]
            ax.plot([found[names[k]] for k in ys], ys, "o", color=COLOURS[p], label=page.TITLES[p], markersize=6)
        ax.axvline(1, color="#1b5e8c", linewidth=1.2)
        ax.set_xscale("log")
        ax.set_xticks([t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if ax.get_xlim()[0] <= t <= ax.get_xlim()[1]])
        ax.xaxis.set_major_formatter(PLAIN)
        ax.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        ax.set_yticks(range(len(names)), names)
        ax.grid(axis="both", alpha=0.25)
        ax.set_xlabel("engine's time ÷ GraphMend's (right of 1: GraphMend is faster)")
        ax.set_title(page.count(threads, "thread"), fontsize=10)
    axes[0][0].invert_yaxis()
    axes[0][-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    return save(fig, path)


def growth(results, path):
    """A panel for each series: latency over the size of the input; and one over the operations of all models."""
    series = results["growth"]
    if not series:
        return False
    fig, axes = plt.subplots(1, len(series) + 1, figsize=(3.7 * (len(series) + 1), 3.2), squeeze=False)
    for ax, s in zip(axes[0], series):
        for name in s["points"][0]["engines"]:
            seen = [(p["x"], page.figure(p["engines"], name, "steady")) for p in s["points"]]
            seen = [(x, t * 1e3) for x, t in seen if t]
            ax.plot([x for x, _ in seen], [t for _, t in seen], "o-", color=COLOURS[name], label=page.TITLES[name], markersize=4)
        ax.set(xscale="log", yscale="log", xlabel=s["axis"], ylabel="ms", title=s["title"])
        ticks = [p["x"] for p in s["points"]]
        ax.set_xticks(ticks, ticks)
        ax.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        ax.yaxis.set_major_formatter(PLAIN)
        ax.yaxis.set_minor_formatter(PLAIN)
        ax.grid(alpha=0.25)
    ax = axes[0][-1]
    for name in ["graphmend", *results["peers"][:2]]:
        seen = []
        for m in results["models"]:
            ops = (m.get("profile") or {}).get("ops")
            t = page.figure(m["threads"].get("1"), name, "steady")
            if ops and t:
                seen.append((ops / 1e6, t * 1e3))
        ax.plot([x for x, _ in seen], [t for _, t in seen], "o", color=COLOURS[name], label=page.TITLES[name], markersize=4)
    ax.set(xscale="log", yscale="log", xlabel="million operations", ylabel="ms", title="all models")
    ax.xaxis.set_major_formatter(PLAIN)
    ax.yaxis.set_major_formatter(PLAIN)
    ax.grid(alpha=0.25)
    axes[0][0].legend(fontsize=8, frameon=False)
    fig.tight_layout()
    return save(fig, path)
