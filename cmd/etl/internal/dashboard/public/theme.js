// Before the first paint, so that the page does not flash in the other theme.
(() => {
  try {
    const theme = localStorage.getItem("sluice.theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is switched off: the system's theme counts.
  }
})();
