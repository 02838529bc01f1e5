"use strict";

// For setupFilesAfterEnv of Jest: each test is judged, and fails if its client breaks a rule that says must.
const { label } = require("./label.js");

require("./session.js").judge({ beforeAll, beforeEach, afterEach, afterAll });
label(() => expect.getState());
