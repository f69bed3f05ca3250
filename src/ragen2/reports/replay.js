"use strict";
const frames = Array.from(document.getElementsByClassName("frame"));
const find = (id) => document.getElementById(id);
let at = 0;
let timer = null;
function show(place) {
  at = Math.max(0, Math.min(frames.length - 1, place));
  frames.forEach((frame, index) => { frame.hidden = index !== at; });
  find("place").value = at;
  find("count").textContent = frames.length ? `${at + 1} / ${frames.length}` : "no frames";
}
function stop() {
  clearInterval(timer);
  timer = null;
  find("play").textContent = "play";
}
function play() {
  if (timer !== null) { stop(); return; }
  if (at === frames.length - 1) { show(0); }
  find("play").textContent = "pause";
  timer = setInterval(() => { if (at >= frames.length - 1) { stop(); } else { show(at + 1); } }, 900);
}
find("place").max = Math.max(0, frames.length - 1);
find("place").addEventListener("input", (event) => { stop(); show(Number(event.target.value)); });
find("back").addEventListener("click", () => { stop(); show(at - 1); });
find("on").addEventListener("click", () => { stop(); show(at + 1); });
find("play").addEventListener("click", play);
document.addEventListener("keydown", (event) => {
  if (event.target === find("place")) { return; }
  if (event.key === "ArrowLeft") { stop(); show(at - 1); }
  if (event.key === "ArrowRight") { stop(); show(at + 1); }
});
show(0);
