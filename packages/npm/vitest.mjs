// For setupFiles of Vitest: each test is judged, and fails if its client breaks a rule that says must.
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import labels from "./label.js";
import session from "./session.js";

session.judge({ beforeAll, beforeEach, afterEach, afterAll });
labels.label(() => expect.getState());
