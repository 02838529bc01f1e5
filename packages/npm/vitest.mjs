// For setupFiles of Vitest: judges each test, and fails it if its client breaks a rule of level MUST.
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import labels from "./label.js";
import session from "./session.js";

session.judge({ beforeAll, beforeEach, afterEach, afterAll });
labels.label(() => expect.getState());
