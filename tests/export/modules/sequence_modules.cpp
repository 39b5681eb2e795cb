// Modules of torch::nn for sequences: embeddings, recurrent layers and cells, attention.
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <tests/export/modules/module_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

// The options that RNN, LSTM and GRU share.
template <class Net, class Options>
void add_recurrent_options(ModuleList& list, const char* name) {
  const auto make = [] { return Options(3, 4); };
  with_batch_second(list.add(name, "", Net(make()), sequence(5, 3)));
  list.add(name, "batch_first(true)", Net(make().batch_first(true)), floats({5, 3}));
  const std::vector<std::pair<const char*, Options>> all = {
      {"num_layers(2)", make().num_layers(2)},
      {"num_layers(2).dropout(0.5)", make().num_layers(2).dropout(0.5)},
      {"bias(false)", make().bias(false)},
      {"bidirectional(true)", make().bidirectional(true)},
      {"num_layers(2).bidirectional(true)", make().num_layers(2).bidirectional(true)}};
  for (const auto& [text, options] : all) {
    with_batch_second(list.add(name, text, Net(options), sequence(5, 3)));
  }
}

// Cells begin with a state of zeros for each sample of the batch, or with a given state.
void add_cells(ModuleList& list) {
  const MakeInput x = floats({3});
  const MakeInput state = floats({4});
  for (const bool bias : {true, false}) {
    const char* const text = bias ? "" : "bias(false)";
    list.add("RNNCell", text, nn::RNNCell(nn::RNNCellOptions(3, 4).bias(bias)), x);
    list.add("LSTMCell", text, nn::LSTMCell(nn::LSTMCellOptions(3, 4).bias(bias)), x);
    list.add("GRUCell", text, nn::GRUCell(nn::GRUCellOptions(3, 4).bias(bias)), x);
  }
  list.add("RNNCell", "nonlinearity(torch::kReLU)",
           nn::RNNCell(nn::RNNCellOptions(3, 4).nonlinearity(torch::kReLU)), x);
  for (const bool bias : {true, false}) {
    const char* const text = bias ? "a given state" : "a given state, no bias";
    list.add("RNNCell", text, nn::RNNCell(nn::RNNCellOptions(3, 4).bias(bias)), x, state);
    list.add("GRUCell", text, nn::GRUCell(nn::GRUCellOptions(3, 4).bias(bias)), x, state);
    list.add_call(
        "LSTMCell", text, nn::LSTMCell(nn::LSTMCellOptions(3, 4).bias(bias)),
        [](nn::LSTMCell& net, const Tensor& input, const Tensor& hidden, const Tensor& cell) {
          return net->forward(input, std::make_tuple(hidden, cell));
        },
        x, state, state);
  }
  const auto in_steps = [](auto& net, const Tensor& input) {
    Tensor hidden = net->forward(input.select(1, 0));
    for (std::int64_t t = 1; t < 3; ++t) hidden = net->forward(input.select(1, t), hidden);
    return hidden;
  };
  list.add_call("RNNCell", "in three steps", nn::RNNCell(3, 4), in_steps, floats({3, 3}));
  list.add_call("GRUCell", "in three steps", nn::GRUCell(3, 4), in_steps, floats({3, 3}));
  list.add_call(
      "LSTMCell", "in three steps", nn::LSTMCell(3, 4),
      [](nn::LSTMCell& net, const Tensor& input) {
        std::tuple<Tensor, Tensor> states = net->forward(input.select(1, 0));
        for (std::int64_t t = 1; t < 3; ++t) states = net->forward(input.select(1, t), states);
        return states;
      },
      floats({3, 3}));
}

void add_attention_options(ModuleList& list) {
  const auto make = [] { return nn::MultiheadAttentionOptions(8, 2); };
  const std::vector<std::pair<const char*, nn::MultiheadAttentionOptions>> all = {
      {"", make()},
      {"bias(false)", make().bias(false)},
      {"dropout(0.5)", make().dropout(0.5)},
      {"add_bias_kv(true)", make().add_bias_kv(true)},
      {"add_zero_attn(true)", make().add_zero_attn(true)}};
  for (const auto& [text, options] : all) {
    with_batch_second(list.add("MultiheadAttention", text, nn::MultiheadAttention(options),
                               sequence(4, 8), sequence(5, 8), sequence(5, 8)));
  }
  // In C++, keys and values must have the same width.
  with_batch_second(list.add("MultiheadAttention", "kdim(6).vdim(6)",
                             nn::MultiheadAttention(make().kdim(6).vdim(6)), sequence(4, 8),
                             sequence(5, 6), sequence(5, 6)));
  // In each second sample all keys are padding: LibTorch gives NaN, too.
  auto& padded = with_batch_second(list.add_call(
      "MultiheadAttention", "a key_padding_mask", nn::MultiheadAttention(make()),
      [](nn::MultiheadAttention& net, const Tensor& x, const Tensor& padding) {
        return net->forward(x, x, x, padding);
      },
      sequence(4, 8),
      [](std::int64_t batch) {
        Tensor padding = torch::rand({batch, 4}) > 0.6;
        for (std::int64_t i = 1; i < batch; i += 2) padding[i].fill_(true);
        padding.slice(0, 0, batch, 2).slice(1, 0, 1).fill_(false);
        return padding;
      }));
  padded.options.batch_dimensions = {1, 0};
  with_batch_second(list.add_call(
      "MultiheadAttention", "an attn_mask", nn::MultiheadAttention(make()),
      [](nn::MultiheadAttention& net, const Tensor& x) {
        const double hidden = -std::numeric_limits<double>::infinity();
        const Tensor mask = torch::full({4, 4}, hidden).triu(1);
        return net->forward(x, x, x, {}, true, mask);
      },
      sequence(4, 8)));
  with_batch_second(list.add_call(
      "MultiheadAttention", "need_weights = false", nn::MultiheadAttention(make()),
      [](nn::MultiheadAttention& net, const Tensor& x) {
        return std::get<0>(net->forward(x, x, x, {}, false));
      },
      sequence(4, 8)));
}

}  // namespace

void add_embedding_modules(ModuleList& list) {
  const MakeInput words = integers(1, 10, {5});
  list.add("Embedding", "", nn::Embedding(10, 4), words);
  list.add("Embedding", "padding_idx(0)", nn::Embedding(nn::EmbeddingOptions(10, 4).padding_idx(0)),
           words);
  list.add("Embedding", "max_norm(1)", nn::Embedding(nn::EmbeddingOptions(10, 4).max_norm(1)),
           words);
  for (const bool sum : {true, false}) {
    auto options = nn::EmbeddingBagOptions(10, 4);
    if (sum) options.mode(torch::kSum);
    list.add("EmbeddingBag", sum ? "mode(torch::kSum)" : "", nn::EmbeddingBag(options), words);
  }
  list.add("EmbeddingBag", "mode(torch::kMax)",
           nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kMax)), words);
}

void add_recurrent_modules(ModuleList& list) {
  add_recurrent_options<nn::RNN, nn::RNNOptions>(list, "RNN");
  add_recurrent_options<nn::LSTM, nn::LSTMOptions>(list, "LSTM");
  add_recurrent_options<nn::GRU, nn::GRUOptions>(list, "GRU");
  with_batch_second(list.add("RNN", "nonlinearity(torch::kReLU)",
                             nn::RNN(nn::RNNOptions(3, 4).nonlinearity(torch::kReLU)),
                             sequence(5, 3)));
  with_batch_second(list.add("RNN", "a given state", nn::RNN(nn::RNNOptions(3, 4)), sequence(5, 3),
                             sequence(1, 4)));
  with_batch_second(list.add("GRU", "a given state", nn::GRU(nn::GRUOptions(3, 4)), sequence(5, 3),
                             sequence(1, 4)));
  with_batch_second(list.add_call(
      "LSTM", "a given state", nn::LSTM(nn::LSTMOptions(3, 4)),
      [](nn::LSTM& net, const Tensor& x, const Tensor& hidden, const Tensor& cell) {
        return net->forward(x, std::make_tuple(hidden, cell));
      },
      sequence(5, 3), sequence(1, 4), sequence(1, 4)));
  with_batch_second(list.add("LSTM", "proj_size(2)", nn::LSTM(nn::LSTMOptions(3, 4).proj_size(2)),
                             sequence(5, 3)));
  add_cells(list);
}

void add_transformer_modules(ModuleList& list) {
  using LayerOptions = nn::TransformerEncoderLayerOptions;
  using DecoderOptions = nn::TransformerDecoderLayerOptions;
  const MakeInput x = sequence(4, 8);
  add_attention_options(list);
  for (const bool gelu : {false, true}) {
    const char* const text = gelu ? "activation(torch::kGELU)" : "";
    auto encoder = LayerOptions(8, 2).dim_feedforward(16);
    auto decoder = DecoderOptions(8, 2).dim_feedforward(16);
    if (gelu) {
      encoder.activation(torch::kGELU);
      decoder.activation(torch::kGELU);
    }
    with_batch_second(
        list.add("TransformerEncoderLayer", text, nn::TransformerEncoderLayer(encoder), x));
    with_batch_second(list.add("TransformerDecoderLayer", text,
                               nn::TransformerDecoderLayer(decoder), x, sequence(5, 8)));
  }
  const auto encoder = LayerOptions(8, 2).dim_feedforward(16);
  const auto decoder = DecoderOptions(8, 2).dim_feedforward(16);
  with_batch_second(list.add("TransformerEncoder", "",
                             nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder, 2)), x));
  with_batch_second(list.add("TransformerDecoder", "",
                             nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder, 2)), x,
                             sequence(5, 8)));
  with_batch_second(
      list.add("Transformer", "", nn::Transformer(nn::TransformerOptions(8, 2, 1, 1)), x, x));
}

}  // namespace lockstep::testing_support
