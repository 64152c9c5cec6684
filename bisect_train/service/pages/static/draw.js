/* Draws the figures of a page with plotly, in the colours of the style sheet. What is drawn is computed on the server. */
"use strict";
const bisectDraw = (() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const isTouch = window.matchMedia("(pointer: coarse)").matches;
  const NIGHTS = {
    clean: ["circle", "--good"], regression: ["triangle-up", "--bad"], drift: ["diamond", "--other"],
    untestable: ["square-open", "--untestable"], intended: ["square", "--c5"], fixed: ["star", "--found"],
    unclear: ["diamond-open", "--soft"], unfinished: ["circle-open", "--soft"],
  };
  let loading = null;

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name.startsWith("--") ? name : `--${name}`).trim();
  }

  function plotly() {
    if (!loading) {
      loading = new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = document.body.dataset.plotly;
        script.onload = () => done(window.Plotly);
        script.onerror = failed;
        document.head.append(script);
      });
    }
    return loading;
  }

  /* Whole steps; of nights the number with its commit, as many as there is room for. */
  function ticks(data, longest) {
    if (!data.nights) return longest < 10 ? { dtick: 1 } : {};
    const every = Math.ceil(data.nights.length / Math.max(2, Math.min(8, Math.floor(window.innerWidth / 130))));
    const named = data.nights.filter((night, idx) => idx % every === 0);
    return { tickvals: named.map((night) => night.n), ticktext: named.map((night) => `${night.n}<br>${night.commit}`) };
  }

  function layout(data, height, hasLegend) {
    const longest = data.nights ? data.nights.length : Math.max(...data.traces.map((item) => item.x[item.x.length - 1]));
    const axis = { zeroline: false, automargin: true, gridcolor: colour("line"), linecolor: colour("line") };
    return {
      height,
      margin: { l: 56, r: 16, t: hasLegend ? 36 : 10, b: data.nights ? 58 : 44 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: colour("ink") },
      hoverlabel: { bgcolor: "#ffffff", font: { color: "#1b1f24" } },
      hovermode: data.kind === "nights" ? "closest" : "x",
      dragmode: isTouch ? false : "zoom",
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
      showlegend: hasLegend,
      xaxis: { ...axis, title: { text: data.x }, ...ticks(data, longest) },
      yaxis: { ...axis, title: { text: data.y } },
    };
  }

  function lines(data) {
    const looks = { good: ["good", 0.75], bad: ["bad", 0.75] };
    return data.traces.map((item) => ({
      type: "scatter", mode: item.x.length < 3 ? "lines+markers" : "lines", name: item.name, x: item.x, y: item.y,
      opacity: (looks[item.colour] || [null, 1])[1], showlegend: !item.unlisted,
      line: { color: colour(item.colour), width: item.width, dash: item.dash },
    }));
  }

  function nights(data) {
    const traces = [{
      type: "scatter", mode: "lines", x: data.nights.map((n) => n.n), y: data.nights.map((n) => n.y),
      line: { color: colour("edge"), width: 1.5 }, hoverinfo: "skip", showlegend: false,
    }];
    for (const [state, [symbol, name]] of Object.entries(NIGHTS)) {
      const found = data.nights.filter((n) => n.state === state);
      if (!found.length) continue;
      const size = state === "clean" ? 9 : 14;
      traces.push({
        type: "scatter", mode: "markers", name: data.words[state], x: found.map((n) => n.n), y: found.map((n) => n.y),
        text: found.map((n) => n.name), hovertemplate: "%{text}<br>%{y:.5g}<extra></extra>",
        error_y: { type: "data", array: found.map((n) => n.sd || 0), thickness: 1, width: 3, color: colour("edge") },
        marker: { symbol, size, color: colour(name), line: { color: colour("page"), width: NIGHTS[state][0].endsWith("open") ? 2 : 1 } },
      });
    }
    return traces;
  }

  async function draw(plot) {
    const source = document.getElementById(plot.dataset.figure);
    if (!source) return;
    const data = plot.latest || JSON.parse(source.textContent);
    const traces = data.kind === "nights" ? nights(data) : lines(data);
    plot.hidden = !traces.length;
    if (!traces.length) return;
    const listed = traces.filter((item) => item.showlegend !== false && item.name).length;
    // on a phone each name of the legend takes a line of its own, which must not be the picture's
    const height = (Number(plot.dataset.height) || 320) + (window.innerWidth < 520 && listed > 1 ? 19 * listed : 0);
    plot.style.minHeight = `${height}px`;
    const Plotly = await plotly();
    if (!plot.isConnected) return;
    const hasLegend = data.kind === "nights" || traces.length > 1;
    const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
    await Plotly.react(plot, traces, layout(data, height, hasLegend), config);
  }

  function drawAll(root) {
    return Promise.all([...root.querySelectorAll("[data-figure]")].map(draw));
  }

  dark.addEventListener("change", () => drawAll(document));
  return { draw, drawAll };
})();
