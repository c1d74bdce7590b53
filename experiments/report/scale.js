// Axes: a place for each value, values that are round to put marks at, and which of many is least or nearest.

/** From values in [low, high] to places in [start, end], and back; on a logarithmic axis all values are above 0. */
function makeScale(low, high, start, end, logarithmic) {
  const into = logarithmic ? Math.log : (value) => value;
  const back = logarithmic ? Math.exp : (value) => value;
  const [first, last] = [into(low), into(high)];
  const span = last - first || 1;
  return {
    place: (value) => start + ((into(value) - first) / span) * (end - start),
    value: (place) => back(first + ((place - start) / (end - start)) * span),
    marks: (count) => (logarithmic ? logarithmicMarks(low, high, count) : linearMarks(low, high, count)),
  };
}

function linearMarks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const marks = [];
  const last = high / step + 1e-9;
  for (let index = Math.ceil(low / step - 1e-9); index <= last; index += 1) marks.push(index * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return marks.map((value) => ({
    value,
    text: value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
  }));
}

function logarithmicMarks(low, high, count) {
  if (high / low < 4) return linearMarks(low, high, count).filter((mark) => mark.value > 0);
  const marks = [];
  const factors = Math.log10(high / low) * 2 <= count ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) marks.push({ value, text: readable(value) });
    }
  }
  return marks;
}

// Math.min(...values) takes as many arguments as there are values, of which there may be too many.
const least = (values) => values.reduce((one, other) => Math.min(one, other));
const greatest = (values) => values.reduce((one, other) => Math.max(one, other));

/** Place of the value in an increasing list that is nearest to `value`. */
function nearest(values, value) {
  let [low, high] = [0, values.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle;
    else high = middle;
  }
  return Math.abs(values[high] - value) < Math.abs(values[low] - value) ? high : low;
}
