// Sliders: a native range, and beside it the value as it is in the description, which can be typed exactly.

import { at, element } from './element.js';
import { get, value } from './description.js';

/** The sliders of the page. `moved(key, value)` is called for each change; it answers why not, or nothing. */
export class Controls {
  constructor(moved) {
    this.moved = moved;
    this.rows = new Map();
  }

  /** Shows `sliders` (as the engine places them) with what `description` says. */
  show(sliders, description) {
    const keys = sliders.map((slider) => slider.key).join();
    if (keys !== this.keys) this.build(sliders);
    this.keys = keys;
    for (const slider of sliders) this.rows.get(slider.key).show(slider, described(description, slider));
  }

  build(sliders) {
    this.rows = new Map(sliders.map((slider) => [slider.key, new Row(slider, this.moved)]));
    const groups = Map.groupBy?.(sliders, (slider) => slider.group) ?? grouped(sliders);
    at('sliders').replaceChildren(...[...groups].map(([name, of]) => this.group(name, of)));
  }

  group(name, sliders) {
    const rows = (isRare) => sliders.filter((one) => one.is_rare === isRare).map((one) => this.rows.get(one.key).element);
    const rare = rows(true);
    const more = rare.length > 0 ? [element('details', {}, element('summary', {}, 'More'), ...rare)] : [];
    return element('fieldset', {}, element('legend', {}, name), ...rows(false), ...more);
  }
}

/** One slider with its exact value; `place` tells two sliders of one number apart. */
export class Row {
  constructor(slider, moved, place = 'slider') {
    this.slider = slider;
    const id = `${place}-${slider.key}`;
    this.range = element('input', { type: 'range', id, min: 0, max: slider.notches.length - 1, step: 1 });
    this.exact = element('input', {
      type: 'text', class: 'exact', 'aria-label': `${slider.group}, ${slider.label}: exact value`,
      autocomplete: 'off', spellcheck: 'false',
    });
    this.element = element('div', { class: 'slider' },
      element('label', { for: id }, element('span', { class: 'hidden' }, `${slider.group}: `), slider.label),
      this.exact, this.range);
    this.why = element('p', { class: 'trouble', id: `${id}-why`, role: 'alert', hidden: true });
    this.element.append(this.why);
    this.range.addEventListener('input', () => {
      this.judge(moved(slider.key, value(this.slider.notches[this.range.valueAsNumber])));
    });
    this.exact.addEventListener('change', () => this.judge(moved(slider.key, value(this.exact.value))));
  }

  /** Shows below the slider why its value was not taken, or that it was. */
  judge(why) {
    const isTaken = why === '';
    this.why.textContent = why;
    this.why.hidden = isTaken;
    this.exact.classList.toggle('wrong', !isTaken);
    for (const [name, said] of [['aria-invalid', 'true'], ['aria-describedby', this.why.id]]) {
      if (isTaken) this.exact.removeAttribute(name);
      else this.exact.setAttribute(name, said);
    }
  }

  show(slider, text) {
    this.slider = slider;
    const position = Math.round(slider.place);
    if (this.range.valueAsNumber !== position) this.range.value = position;
    this.range.setAttribute('aria-valuetext', text);
    this.range.style.setProperty('--place', slider.place / (slider.notches.length - 1));
    if (document.activeElement !== this.exact) {
      this.exact.value = text;
      this.judge('');
    }
  }
}

/** What the description says for a slider; what it leaves out is at a notch. */
export function described(description, slider) {
  return String(get(description, slider.key) ?? slider.notches[Math.round(slider.place)]);
}

function grouped(sliders) {
  const groups = new Map();
  for (const slider of sliders) groups.set(slider.group, [...(groups.get(slider.group) ?? []), slider]);
  return groups;
}
