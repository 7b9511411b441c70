"use strict";
{
  const data = {{.Data}};
  const time = document.querySelector(".time"), cursor = time.querySelector(".cursor");
  const readings = [...time.querySelectorAll(".key b")];
  const two = n => String(n).padStart(2, "0");
  const clock = ms => {
    const s = Math.floor(ms / 1000), h = Math.floor(s / 3600);
    const tail = data.width < 1000 ? "." + String(Math.floor(ms % 1000 / 10)).padStart(2, "0") : "";
    return (h ? h + ":" + two(Math.floor(s / 60) % 60) : Math.floor(s / 60)) + ":" + two(s % 60) + tail;
  };
  const number = v => v >= 100 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(3)));
  const say = (v, unit) => {
    if (v === null) return "–";
    if (unit !== "s") return number(v) + unit;
    return v >= 1 || v === 0 ? number(v) + " s" : v >= 1e-3 ? number(v * 1e3) + " ms" : number(v * 1e6) + " µs";
  };
  const hide = () => { cursor.hidden = true; for (const b of readings) b.textContent = ""; };
  time.addEventListener("pointerleave", hide);
  time.addEventListener("pointermove", e => {
    const box = time.querySelector(".back").getBoundingClientRect();
    const x = (e.clientX - box.left) / box.width;
    if (x < 0 || x > 1) return hide();
    const i = Math.min(Math.floor(x * data.end / data.width), data.n - 1);
    cursor.hidden = false;
    cursor.style.left = e.clientX - time.getBoundingClientRect().left + "px";
    cursor.firstChild.textContent = clock(i * data.width);
    readings.forEach((b, k) => { b.textContent = say(data.lines[k][i], b.dataset.unit); });
  });
  const reveal = () => {
    const at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let e = at; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    if (at) at.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  const button = document.querySelector(".command button");
  if (navigator.clipboard) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent.trim());
      button.textContent = "Copied";
    });
  }
}
