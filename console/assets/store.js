// Stores the user's settings in the browser: columns and colors. Without local storage, settings are lost.
const PREFIX = "forgerun.console.";

export function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch { /* it is remembered until the page is left */ }
}
