// Names the mark under the pointer, also for users of the keyboard: Tab goes from lane to lane, the arrows
// from mark to mark.
const tip = document.getElementById('tip');
let chosen = null;

function hide() {
  tip.hidden = true;
  if (chosen) chosen.classList.remove('at');
  chosen = null;
}

function show(mark, x, y) {
  if (chosen) chosen.classList.remove('at');
  chosen = mark;
  mark.classList.add('at');
  tip.textContent = mark.closest('svg').getAttribute('aria-label') + ': ' + mark.dataset.said;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const right = document.documentElement.clientWidth - box.width - 8;
  const above = y - box.height - 12;
  tip.style.left = Math.max(8, Math.min(x - box.width / 2, right)) + 'px';
  tip.style.top = (above > 4 ? above : y + 18) + 'px';
}

function show_beside(mark) {
  const box = mark.getBoundingClientRect();
  show(mark, box.left + box.width / 2, box.top);
}

for (const lane of document.querySelectorAll('.lane > svg[tabindex]')) {
  const marks = Array.from(lane.querySelectorAll('[data-said]'));
  marks.sort((one, other) => one.x.baseVal.value - other.x.baseVal.value);
  let at = 0;
  lane.addEventListener('pointermove', event => {
    const mark = event.target.closest('[data-said]');
    if (mark) show(mark, event.clientX, event.clientY); else hide();
  });
  lane.addEventListener('pointerleave', hide);
  lane.addEventListener('focus', () => { if (marks.length) show_beside(marks[at]); });
  lane.addEventListener('blur', hide);
  lane.addEventListener('keydown', event => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: marks.length - 1 }[event.key];
    if (event.key === 'Escape') hide();
    if (to === undefined || !marks.length) return;
    event.preventDefault();
    at = Math.max(0, Math.min(to, marks.length - 1));
    show_beside(marks[at]);
  });
}
