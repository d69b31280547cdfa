// What is wrong with the page, as a list of lines. Runs in the page after it has loaded.
async () => {
  const faults = [];

  // Every picture loads, those further down too.
  const images = [...document.images];
  images.forEach(image => { image.loading = "eager"; });
  await Promise.all(images.map(image => image.decode().catch(() => {})));
  for (const image of images) {
    if (!image.naturalWidth) faults.push(`picture did not load: ${image.src}`);
    const frame = 2 * parseFloat(getComputedStyle(image).paddingTop); // the theme's, in the dark
    const shown = (image.clientWidth - frame) / (image.clientHeight - frame);
    const stretched = shown / (image.naturalWidth / image.naturalHeight);
    if (Math.abs(stretched - 1) > 0.02) faults.push(`picture out of proportion by ${stretched}: ${image.src}`);
  }

  // Every formula was typeset at the build, and its font is there.
  const formulas = [...document.querySelectorAll(".math")];
  const bare = formulas.filter(formula => !formula.querySelector("math"));
  if (bare.length) faults.push(`${bare.length} of ${formulas.length} formulas are not typeset`);
  await document.fonts.ready;
  for (const face of document.fonts) {
    if (face.status === "error") faults.push(`font did not load: ${face.family}`);
  }
  if (document.querySelector("math") && !document.fonts.check("16px 'Latin Modern Math'", "x")) {
    faults.push("the formulas' font did not load");
  }

  // Text stands out from its background by the WCAG's ratio for body text.
  const channels = colour => colour.match(/[\d.]+/g).map(Number);
  const luminance = colour => {
    const [r, g, b] = channels(colour).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0.5) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const text = ["h1", "h2", "p", "li", "td", "pre", "pre span", "figcaption", "a:not(.headerlink)"].map(tag => `article ${tag}`);
  for (const element of document.querySelectorAll(text.join())) {
    if (!element.textContent.trim() || !element.checkVisibility()) continue;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(background(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(1)}: ${element.textContent.trim().slice(0, 60)}`);
  }

  // Nothing sticks out at the side.
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) faults.push(`${scrollWidth} px wide on a screen of ${clientWidth}`);
  return faults;
}
