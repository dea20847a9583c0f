// Starts `omnigraph lsp` and connects it to the editor.
"use strict";

const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
  const settings = workspace.getConfiguration("omnigraph");
  client = new LanguageClient(
    "omnigraph",
    "OmniGraph",
    { command: settings.get("command", "omnigraph"), args: ["lsp"] },
    {
      documentSelector: [
        { scheme: "file", language: "pg" },
        { scheme: "file", language: "gq" },
      ],
      initializationOptions: { schema: settings.get("schema", "") },
      synchronize: { configurationSection: "omnigraph" },
    },
  );
  return client.start();
}

function deactivate() {
  return client === undefined ? undefined : client.stop();
}

module.exports = { activate, deactivate };
