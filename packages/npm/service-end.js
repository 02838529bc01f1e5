"use strict";

module.exports = require("./service.js").end;
