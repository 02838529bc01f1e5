"use strict";

// path returns the program's path: FORGERUN_BINARY, or the program in the package for this platform. npm installs only that package.
exports.path = () => {
  if (process.env.FORGERUN_BINARY) return process.env.FORGERUN_BINARY;
  const name = `@forgerun/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/forgerun${process.platform === "win32" ? ".exe" : ""}`);
  } catch {
    throw new Error(
      `The package ${name} is not installed. If npm was told to leave out optional packages, install it by name; ` +
        "if there is none for this machine, build forgerun and set FORGERUN_BINARY to its path.",
    );
  }
};
