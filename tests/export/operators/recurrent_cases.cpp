// Recurrent layers.
#include <tuple>

#include <torch/nn/modules/rnn.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

}  // namespace

void add_recurrent_cases(CaseList& cases) {
  cases.add_net("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)), floats({5, 3}));
  cases.add_net("lstm",
                nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)),
                floats({5, 3}));
  cases
      .add_net("lstm", nn::LSTM(nn::LSTMOptions(3, 4).bias(false)),
               [](std::int64_t batch) { return torch::randn({5, batch, 3}); })
      .options.batch_dimensions = {1};
  cases.add_net("gru", nn::GRU(nn::GRUOptions(3, 4).num_layers(2).batch_first(true)),
                floats({5, 3}));
  cases.add_net("gru", nn::GRU(nn::GRUOptions(3, 4).bidirectional(true).batch_first(true)),
                floats({5, 3}));
  cases.add_net("rnn_tanh", nn::RNN(nn::RNNOptions(3, 4).batch_first(true)), floats({5, 3}));
  cases.add_net(
      "rnn_relu",
      nn::RNN(
          nn::RNNOptions(3, 4).nonlinearity(torch::kReLU).bidirectional(true).batch_first(true)),
      floats({5, 3}));
  // Given states of two layers in two directions.
  const MakeInput states = [](std::int64_t batch) { return torch::randn({4, batch, 4}); };
  const auto gru =
      nn::GRU(nn::GRUOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)).ptr();
  auto& gru_case = cases.add(
      "gru", [gru](const Tensor& x, const Tensor& hidden) { return gru->forward(x, hidden); },
      {floats({5, 3}), states});
  gru_case.module = gru;
  gru_case.options.batch_dimensions = {0, 1};
  const auto lstm =
      nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)).ptr();
  auto& lstm_case = cases.add("lstm",
                              [lstm](const Tensor& x, const Tensor& hidden, const Tensor& cell) {
                                return lstm->forward(x, std::make_tuple(hidden, cell));
                              },
                              {floats({5, 3}), states, states});
  lstm_case.module = lstm;
  lstm_case.options.batch_dimensions = {0, 1, 1};
}

}  // namespace lockstep::testing_support
