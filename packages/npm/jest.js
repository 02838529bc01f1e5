"use strict";

// For setupFilesAfterEnv of Jest: judges each test, and fails it if its client breaks a rule of level MUST.
const { label } = require("./label.js");

require("./session.js").judge({ beforeAll, beforeEach, afterEach, afterAll });
label(() => expect.getState());
